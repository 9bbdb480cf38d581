# `cmake --install` and what find_package(mhla) reads. Component `torch` adds mhla::torch.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/mhla DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development)
install(TARGETS mhla EXPORT mhlaTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(EXPORT mhlaTargets NAMESPACE mhla:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/mhla" COMPONENT development)

if(MHLA_TORCH)
  install(TARGETS mhla_torch EXPORT mhlaTorchTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT runtime
          ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
  install(EXPORT mhlaTorchTargets NAMESPACE mhla:: DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/mhla" COMPONENT development)
endif()

set(MHLA_NEEDS_CUDA OFF)
if(MHLA_CUDA_FOUND AND NOT BUILD_SHARED_LIBS)
  set(MHLA_NEEDS_CUDA ON)
endif()
configure_package_config_file(cmake/mhlaConfig.cmake.in "${PROJECT_BINARY_DIR}/mhlaConfig.cmake"
                              INSTALL_DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/mhla")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/mhlaConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/mhlaConfig.cmake" "${PROJECT_BINARY_DIR}/mhlaConfigVersion.cmake"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/cmake/mhla" COMPONENT development)
