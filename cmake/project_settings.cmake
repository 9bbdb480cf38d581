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

# nvcc's preprocessor shows ccache the code of one architecture only; in depend mode it looks at whole files instead.
find_program(MHLA_CCACHE ccache)
if(MHLA_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${MHLA_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 ${MHLA_CCACHE})
endif()

# Torch's headers cost some twenty seconds per source file, precompiled or not (their inline code is what takes the time),
# and this code only calls into libraries: few, large compilations at a modest level.
function(mhla_parse_torch_once target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 24)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# Some torch wheels export a std::filesystem of their own that does not fit; the system's must be found first. (By file name:
# g++ moves a plain -lstdc++ to the end.)
function(mhla_prefer_system_library program)
  target_link_options(${program} PRIVATE -Wl,--push-state,--no-as-needed -l:libstdc++.so.6 -Wl,--pop-state)
endfunction()

add_library(mhla_settings INTERFACE)
# -Wno-restrict: GCC 12 reports string concatenation falsely.
set(warnings -Wall -Wextra -Wno-psabi -Wno-restrict)
list(JOIN warnings "," warnings_of_nvcc)
target_compile_options(mhla_settings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${warnings}>
                                               $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${warnings_of_nvcc}>)
if(MHLA_SANITIZE)
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined;-fno-sanitize-recover=undefined;-fno-omit-frame-pointer>")
  add_link_options(-fsanitize=address,undefined)
endif()

# Third-party headers (CLI11, nlohmann-json, fmt) collected by tools/bootstrap.sh; system headers otherwise.
set(MHLA_DEPS_INCLUDE "${PROJECT_SOURCE_DIR}/.deps/include" CACHE PATH "Prefix of the third-party headers")
add_library(mhla_third_party INTERFACE)
if(EXISTS "${MHLA_DEPS_INCLUDE}")
  target_include_directories(mhla_third_party SYSTEM INTERFACE "${MHLA_DEPS_INCLUDE}")
endif()
target_compile_definitions(mhla_third_party INTERFACE FMT_HEADER_ONLY)
