# NOUGHT_CUDA: ON builds the kernels of CUDA with nvcc, `nought` with them, and the program that tests them on a GPU; OFF
# does not. AUTO is OFF today: no GPU has run them yet, and they take longer to compile than all else, so nobody who only
# has nvcc pays for it. It will be ON where nvcc is found. Sets NOUGHT_HAS_CUDA.
set(NOUGHT_CUDA AUTO CACHE STRING "Kernels of CUDA: AUTO, ON or OFF")
set_property(CACHE NOUGHT_CUDA PROPERTY STRINGS AUTO ON OFF)
set(NOUGHT_CUDA_ARCHITECTURES "80-real;90a-real;80-virtual" CACHE STRING
    "What the kernels of CUDA are compiled for; 80-virtual serves newer GPUs when they are first used")
set(NOUGHT_HAS_CUDA OFF)
if(NOT NOUGHT_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "NOUGHT_CUDA is ${NOUGHT_CUDA}, expected AUTO, ON or OFF")
endif()
if(NOUGHT_CUDA STREQUAL "ON")
  include(CheckLanguage)
  if(NOT DEFINED CMAKE_CUDA_COMPILER AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "NOUGHT_CUDA=ON needs nvcc in the PATH, in /usr/local/cuda, or in CMAKE_CUDA_COMPILER")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${NOUGHT_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  # CMake 3.25 asks for C++17 behind the options of a target, as the newest that it knows of CUDA.
  set(CMAKE_CUDA17_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA17_EXTENSION_COMPILE_OPTION "-std=c++20")
  find_package(CUDAToolkit REQUIRED)
  set(NOUGHT_HAS_CUDA ON)
endif()
