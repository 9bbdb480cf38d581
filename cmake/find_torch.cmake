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

# Headers and libraries only: the CMake package of a torch with CUDA would ask for a complete CUDA toolkit. libtorch names the
# libraries of its back ends; it must be loaded although nothing here calls into it.
get_filename_component(torch_root "${torch_prefix}/../.." ABSOLUTE)
set(torch_lib_dir "${torch_root}/lib")
add_library(torch INTERFACE IMPORTED)
target_include_directories(torch SYSTEM INTERFACE "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
# Published torch is built with NDEBUG, and the layout of some of its classes depends on it.
target_compile_definitions(torch INTERFACE $<$<NOT:$<CONFIG:Release>>:NDEBUG>)
target_link_libraries(torch INTERFACE "-Wl,--push-state,--no-as-needed,${torch_lib_dir}/libtorch.so,--pop-state"
                                      "${torch_lib_dir}/libtorch_cpu.so" "${torch_lib_dir}/libc10.so")

# Python's headers, where they are installed, for what the package calls torch with.
execute_process(COMMAND "${MHLA_PYTHON}" -I -c "import sysconfig; print(sysconfig.get_path('include'))"
                OUTPUT_VARIABLE python_include OUTPUT_STRIP_TRAILING_WHITESPACE)
if(EXISTS "${python_include}/Python.h")
  add_library(torch_python INTERFACE IMPORTED)
  target_include_directories(torch_python SYSTEM INTERFACE "${python_include}")
  target_link_libraries(torch_python INTERFACE torch "${torch_lib_dir}/libtorch_python.so")
endif()

# The OpenMP runtime torch itself runs on, so that both share one pool of threads.
file(GLOB MHLA_TORCH_OPENMP "${torch_lib_dir}/libgomp*.so*")
if(NOT MHLA_TORCH_OPENMP)
  find_package(OpenMP REQUIRED)
  set(MHLA_TORCH_OPENMP OpenMP::OpenMP_CXX)
endif()
