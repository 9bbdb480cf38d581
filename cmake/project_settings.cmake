# Language level, warnings, sanitizers, compiler cache and output folders of every target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_INSTALL_RPATH "$ORIGIN" "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo" FORCE)
endif()

# Paths below the sources are relative in the cache, so that another clone finds what this one compiled.
# nvcc's preprocessor shows ccache the code of one architecture only; in depend mode it looks at whole files instead.
find_program(MHLA_CCACHE ccache)
if(MHLA_CCACHE)
  set(cache_of_clones CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${cache_of_clones} CCACHE_SLOPPINESS=pch_defines,time_macros
                                  ${MHLA_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env ${cache_of_clones} CCACHE_DEPEND=1 ${MHLA_CCACHE})
endif()

# Headers take longer to read than the code that follows them: a few files together are one compilation.
function(mhla_compile_together target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 12)
endfunction()

# Torch's headers take 14 seconds to read, and this code only calls into libraries: at a modest level.
function(mhla_parse_torch_once target)
  mhla_compile_together(${target})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Models, training and commands compute with tensors, whose memory is torch's: AddressSanitizer without optimisation
# compiles them in half the time. The operator, its torch layer and everything that reads files have both sanitizers.
function(mhla_sanitize_lightly target)
  if(MHLA_SANITIZE)
    target_compile_options(${target} PRIVATE -O0 -g0 -fno-sanitize=undefined)
  endif()
endfunction()

# One precompiled <torch/torch.h> for all targets of the program and its tests: 4 seconds instead of 14.
function(mhla_precompile_torch target)
  if(NOT TARGET mhla_torch_headers)
    file(WRITE "${PROJECT_BINARY_DIR}/torch_headers.cpp" "")
    add_library(mhla_torch_headers OBJECT "${PROJECT_BINARY_DIR}/torch_headers.cpp")
    target_compile_options(mhla_torch_headers PRIVATE $<$<CONFIG:Release>:-O1>)
    target_link_libraries(mhla_torch_headers PRIVATE torch mhla_settings)
    target_precompile_headers(mhla_torch_headers PRIVATE <torch/torch.h>)
    mhla_sanitize_lightly(mhla_torch_headers)
  endif()
  target_precompile_headers(${target} REUSE_FROM mhla_torch_headers)
  mhla_sanitize_lightly(${target})
endfunction()

# One C++ runtime in the process, the system's libstdc++.so.6. Compilers whose libstdc++.so is missing link a static copy
# without a word, and then streams of the two copies break each other; some torch wheels export a std::filesystem that does not
# fit. By file name: g++ moves a plain -lstdc++ to the end.
function(mhla_link_one_runtime target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    get_target_property(type ${target} TYPE)
    if(NOT type STREQUAL "STATIC_LIBRARY")
      target_link_options(${target} PRIVATE -Wl,--push-state,--no-as-needed -l:libstdc++.so.6 -Wl,--pop-state)
    endif()
  endif()
endfunction()

add_library(mhla_settings INTERFACE)
set(warnings -Wall -Wextra -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wno-restrict)  # GCC 12 reports string concatenation falsely
endif()
list(JOIN warnings "," warnings_of_nvcc)
target_compile_options(mhla_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>
                                               $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${warnings_of_nvcc}>)
if(MHLA_SANITIZE)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=undefined;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=address,undefined)
endif()
if(MHLA_SANITIZE_THREADS)
  add_compile_options(-fsanitize=thread)
  add_link_options(-fsanitize=thread)
endif()
if(MHLA_LIBFUZZER)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# Third-party headers (CLI11, nlohmann-json, fmt) collected by tools/bootstrap.sh; system headers otherwise.
set(MHLA_DEPS_INCLUDE "${PROJECT_SOURCE_DIR}/.deps/include" CACHE PATH "Prefix of the third-party headers")
add_library(mhla_third_party INTERFACE)
if(EXISTS "${MHLA_DEPS_INCLUDE}")
  target_include_directories(mhla_third_party SYSTEM INTERFACE "${MHLA_DEPS_INCLUDE}")
endif()
target_compile_definitions(mhla_third_party INTERFACE FMT_HEADER_ONLY)
