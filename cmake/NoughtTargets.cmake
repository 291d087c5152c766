# One folder = one target: nought_library(NAME DEPENDS ...) compiles every .cpp of the calling folder, and
# nought_test(FOLDER ...) makes one test program of tests/FOLDER.
include(GNUInstallDirs)

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Precompiled headers are compared by what they hold, not by when they were made. Paths count from the checkout, so that
  # what one checkout of the same files compiled serves all others of this machine.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
                                  CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

add_library(nought_options INTERFACE)
target_compile_options(nought_options INTERFACE $<BUILD_INTERFACE:-Wall -Wextra -Wpedantic>)
if(NOUGHT_WERROR)
  target_compile_options(nought_options INTERFACE $<BUILD_INTERFACE:-Werror>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects garbage more rarely: a sixth less time for about 150 MiB more memory. Compilers take up to 1 GiB.
  target_compile_options(nought_options INTERFACE
                         $<BUILD_INTERFACE:--param=ggc-min-heapsize=600000;--param=ggc-min-expand=200>)
endif()
if(NOUGHT_SANITIZE)
  target_compile_options(nought_options INTERFACE -fsanitize=${NOUGHT_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_link_options(nought_options INTERFACE -fsanitize=${NOUGHT_SANITIZE})
endif()

# Each further instruction set compiles Highway's kernels again.
set(NOUGHT_TARGETS all CACHE STRING "Instruction sets of the CPU kernels: all, dev (AVX-512, AVX2, plain) or few (AVX2, plain)")
set_property(CACHE NOUGHT_TARGETS PROPERTY STRINGS all dev few)
if(NOUGHT_SANITIZE)
  set(NOUGHT_TARGETS few)
endif()
if(NOUGHT_TARGETS STREQUAL "few")
  set(left_out HWY_SSE4|HWY_AVX3|HWY_AVX3_DL)
elseif(NOUGHT_TARGETS STREQUAL "dev")
  set(left_out HWY_SSE4)
elseif(NOT NOUGHT_TARGETS STREQUAL "all")
  message(FATAL_ERROR "NOUGHT_TARGETS is ${NOUGHT_TARGETS}, expected all, dev or few")
endif()
if(left_out)
  target_compile_definitions(nought_options INTERFACE $<BUILD_INTERFACE:HWY_BROKEN_TARGETS=\(${left_out}\)>)
endif()

if(NOUGHT_FUZZ)
  target_compile_options(nought_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(hwy REQUIRED)  # here, as static libraries pass it on to all folders
find_package(MPI REQUIRED COMPONENTS C)
if(NOUGHT_OPENMP)
  find_package(OpenMP REQUIRED)
endif()

# What has no hot loop is compiled in half of the time, and so are tests. Without any optimization they would take longer to
# run than they save.
set(NOUGHT_COLD_OPTIONS $<$<CONFIG:Release>:-Og>)
set(NOUGHT_TEST_OPTIONS ${NOUGHT_COLD_OPTIONS})

# A folder's files are compiled several at a time, as one: reading the headers takes as long as all else. So two files of
# a folder can not use one name for two things in an unnamed namespace. A file that can not be joined has the property
# SKIP_UNITY_BUILD_INCLUSION.
option(NOUGHT_UNITY "Compile several files of a folder as one" ON)
# How many of a library and of a test program. The build of the sanitizers is made once and not file by file: nearly all of a
# folder is half the time, as what headers instantiate is instrumented once. More would take compilers of above 2 GiB.
set(NOUGHT_UNITY_FILES 16)
set(NOUGHT_UNITY_TESTS 8)
if(NOUGHT_SANITIZE)
  set(NOUGHT_UNITY_FILES 50)
  set(NOUGHT_UNITY_TESTS 30)
endif()

# nought_library(NAME [COLD] [DEPENDS targets...] [SOURCES extra...] [EXCLUDE files...])
# COLD: a folder without loops that anybody waits for.
function(nought_library name)
  cmake_parse_arguments(ARG "COLD" "" "DEPENDS;SOURCES;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  list(TRANSFORM ARG_EXCLUDE PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(REMOVE_ITEM sources ${ARG_EXCLUDE})
  add_library(nought_${name} STATIC ${sources} ${ARG_SOURCES})
  add_library(nought::${name} ALIAS nought_${name})
  target_include_directories(nought_${name} PUBLIC
    $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/nought-detail>)
  target_link_libraries(nought_${name} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:nought_options>)
  if(ARG_COLD)
    target_compile_options(nought_${name} PRIVATE ${NOUGHT_COLD_OPTIONS})
  endif()
  set_target_properties(nought_${name} PROPERTIES EXPORT_NAME ${name} UNITY_BUILD ${NOUGHT_UNITY}
                        UNITY_BUILD_BATCH_SIZE ${NOUGHT_UNITY_FILES})
  set_property(GLOBAL APPEND PROPERTY NOUGHT_LIBRARIES nought_${name})
endfunction()
