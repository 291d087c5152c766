# Trains by examples/training_loop.cpp, then continues a text with what it saved by examples/generate.cpp.
file(REMOVE_RECURSE ${OUTPUT})
execute_process(COMMAND ${LOOP} ${CONFIG} ${TEXT} ${OUTPUT} 40 COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${GENERATE} ${OUTPUT} "#include" 8 OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
string(LENGTH "${text}" length)
if(length LESS 2)
  message(FATAL_ERROR "generate: expected some text, got \"${text}\"")
endif()
