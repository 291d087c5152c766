# cmake --install into an empty prefix, then configure, build and run tests/install/consumer against it.
set(work ${BUILD}/tests/install)
file(REMOVE_RECURSE ${work}/prefix ${work}/consumer)

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

set(flags -Wall -Wextra -Wpedantic -Werror)
if(SANITIZE)
  list(APPEND flags -fsanitize=${SANITIZE})
endif()
list(JOIN flags " " flags)

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${work}/prefix)
run(${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${work}/consumer -G ${GENERATOR}
    -D CMAKE_PREFIX_PATH=${work}/prefix -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    -D CMAKE_CXX_FLAGS=${flags})
run(${CMAKE_COMMAND} --build ${work}/consumer)
run(${work}/consumer/consumer)
run(${work}/prefix/bin/nought --version)
