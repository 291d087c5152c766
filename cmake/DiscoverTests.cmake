# Writes the entries of CTest for the tests of a program:
#
#   cmake -D PROGRAM=... -D FOLDER=zero -D UNMARKED=small -D OUTPUT=... -P DiscoverTests.cmake
#
# The program says the size of each test (tests/support/size.h), which becomes a label; UNMARKED is that of tests without
# a mark. The small tests of a suite are one
# entry, "zero/Reducer", and share a process. Medium ones share it by fours, "zero/Reducer.medium_1" and on; they start
# first. Long ones are entries of their own, "zero/Reducer.NAME". NOUGHT_EACH_TEST in CTest's environment makes every test
# an entry of its own.
cmake_minimum_required(VERSION 3.25)
set(at_once 4)     # medium tests of an entry
set(seconds 600)   # an entry that takes longer has failed

execute_process(COMMAND ${PROGRAM} --list_sizes OUTPUT_VARIABLE listed RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --list_sizes ended with ${status}: ${listed}")
endif()
string(STRIP "${listed}" listed)
string(REPLACE "\n" ";" listed "${listed}")

# add_entry(CONTENT NAME SIZE FILTER)
function(add_entry content name size filter)
  set(properties "LABELS ${size} TIMEOUT ${seconds}")
  if(size STREQUAL "medium")
    string(APPEND properties " COST 10")
  elseif(size STREQUAL "long")
    set(properties "LABELS long TIMEOUT 7200 ENVIRONMENT NOUGHT_LONG=1")
  endif()
  set(${content} "${${content}}add_test([=[${FOLDER}/${name}]=] [=[${PROGRAM}]=] [=[--gtest_filter=${filter}]=])
set_tests_properties([=[${FOLDER}/${name}]=] PROPERTIES ${properties})
" PARENT_SCOPE)
endfunction()

set(suites "")
set(each "")
foreach(line IN LISTS listed)
  string(REGEX REPLACE "^unmarked " "${UNMARKED} " line "${line}")
  if(NOT line MATCHES "^(small|medium|long) (([^.]+)\\.(.+))$")
    message(FATAL_ERROR "${PROGRAM} --list_sizes says \"${line}\", expected small, medium or long and the name of a test")
  endif()
  set(size ${CMAKE_MATCH_1})
  set(name ${CMAKE_MATCH_2})
  set(suite ${CMAKE_MATCH_3})
  list(APPEND suites ${suite})
  list(APPEND ${size}_of_${suite} ${name})
  add_entry(each ${name} ${size} ${name})
endforeach()
list(REMOVE_DUPLICATES suites)

set(grouped "")
foreach(suite IN LISTS suites)
  if(DEFINED small_of_${suite})
    set(filter "${suite}.*")
    if(DEFINED medium_of_${suite} OR DEFINED long_of_${suite})
      list(JOIN small_of_${suite} ":" filter)
    endif()
    add_entry(grouped ${suite} small "${filter}")
  endif()
  set(part 0)
  while(medium_of_${suite})
    math(EXPR part "${part} + 1")
    set(part_size 0)
    set(tests "")
    while(medium_of_${suite} AND part_size LESS at_once)
      list(POP_FRONT medium_of_${suite} test)
      list(APPEND tests ${test})
      list(LENGTH tests part_size)
    endwhile()
    list(JOIN tests ":" filter)
    add_entry(grouped ${suite}.medium_${part} medium "${filter}")
  endwhile()
  foreach(name IN LISTS long_of_${suite})
    add_entry(grouped ${name} long ${name})
  endforeach()
endforeach()

file(WRITE ${OUTPUT} "if(DEFINED ENV{NOUGHT_EACH_TEST})
${each}else()
${grouped}endif()
")
