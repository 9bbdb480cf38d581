# Finds the LibTorch inside the Python package `torch`: of the interpreter pip builds a wheel for, else of .venv where
# there is one, else of python3.
# Isolated mode (-I) looks past a build front end's temporary environment to the packages really installed.
if(NOT MHLA_PYTHON)
  if(SKBUILD)
    set(MHLA_PYTHON "${Python_EXECUTABLE}")
  elseif(EXISTS "${PROJECT_SOURCE_DIR}/.venv/bin/python")
    set(MHLA_PYTHON "${PROJECT_SOURCE_DIR}/.venv/bin/python")
  else()
    find_program(MHLA_PYTHON python3 REQUIRED)
  endif()
endif()
execute_process(
  COMMAND "${MHLA_PYTHON}" -I -c "import torch; print(torch.utils.cmake_prefix_path)"
  OUTPUT_VARIABLE torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed ERROR_QUIET)
if(failed)
  message(FATAL_ERROR "MHLA_PYTHON=${MHLA_PYTHON} has no package `torch`; run tools/bootstrap.sh or set MHLA_PYTHON")
endif()
list(APPEND CMAKE_PREFIX_PATH "${torch_prefix}")
# A torch with CUDA sets flags and architectures for nvcc that are meant for its own code.
set(nvcc_flags "${CMAKE_CUDA_FLAGS}")
find_package(Torch REQUIRED)
set(CMAKE_CUDA_FLAGS "${nvcc_flags}")

# The OpenMP runtime torch itself runs on, so that both share one pool of threads.
get_filename_component(torch_lib_dir "${torch_prefix}/../../lib" ABSOLUTE)
file(GLOB MHLA_TORCH_OPENMP "${torch_lib_dir}/libgomp*.so*")
if(NOT MHLA_TORCH_OPENMP)
  find_package(OpenMP REQUIRED)
  set(MHLA_TORCH_OPENMP OpenMP::OpenMP_CXX)
endif()
