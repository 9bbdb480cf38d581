# Whether the CUDA back end is built, and for which GPUs. Afterwards MHLA_CUDA_FOUND says which.
set(MHLA_CUDA AUTO CACHE STRING "The CUDA back end: ON, OFF, or AUTO (where there are a GPU and nvcc)")
set_property(CACHE MHLA_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for Ampere and Hopper; GPUs between and after them translate the intermediate code of the first.
set(MHLA_CUDA_ARCHITECTURES "80;90a-real" CACHE STRING "GPUs the CUDA back end is compiled for")

set(MHLA_CUDA_FOUND OFF)
set(wanted ${MHLA_CUDA})
if(MHLA_CUDA STREQUAL AUTO)
  file(GLOB wanted /dev/nvidia[0-9]* /dev/dxg)
endif()
if(wanted)
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_ARCHITECTURES ${MHLA_CUDA_ARCHITECTURES})
    enable_language(CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know it yet
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    set(CMAKE_CUDA_EXTENSIONS OFF)
    find_package(CUDAToolkit REQUIRED)
    set(MHLA_CUDA_FOUND ON)
  elseif(NOT MHLA_CUDA STREQUAL AUTO)
    message(FATAL_ERROR "MHLA_CUDA is ${MHLA_CUDA}, but no CUDA compiler (nvcc) was found; put it on the PATH, set "
                        "CMAKE_CUDA_COMPILER, or configure with MHLA_CUDA=OFF")
  endif()
endif()
