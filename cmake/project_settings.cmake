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

find_program(MHLA_CCACHE ccache)
if(MHLA_CCACHE)
  # The two sloppiness settings are what ccache needs to cache builds with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
                                  ${MHLA_CCACHE})
endif()

add_library(mhla_settings INTERFACE)
# -Wno-restrict: GCC 12 reports string concatenation falsely.
target_compile_options(mhla_settings INTERFACE -Wall -Wextra -Wno-psabi -Wno-restrict)
if(MHLA_CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(mhla_settings INTERFACE -fpch-preprocess)
endif()
if(MHLA_SANITIZE)
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
endif()

# Third-party headers (CLI11, nlohmann-json, fmt) collected by tools/bootstrap.sh; system headers otherwise.
set(MHLA_DEPS_INCLUDE "${PROJECT_SOURCE_DIR}/.deps/include" CACHE PATH "Prefix of the third-party headers")
add_library(mhla_third_party INTERFACE)
if(EXISTS "${MHLA_DEPS_INCLUDE}")
  target_include_directories(mhla_third_party SYSTEM INTERFACE "${MHLA_DEPS_INCLUDE}")
endif()
target_compile_definitions(mhla_third_party INTERFACE FMT_HEADER_ONLY)
