# The CUDA back end inside libmhla, or what stands in for it. Its runtime is linked in statically and kept to itself: users of
# the shared library need no CUDA, and a torch in the same process keeps its own.
if(NOT MHLA_CUDA_FOUND)
  target_sources(mhla PRIVATE cuda/without_cuda.cpp)
  return()
endif()
file(GLOB_RECURSE cuda_sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/cuda/*.cu)
target_sources(mhla PRIVATE ${cuda_sources})
set_target_properties(mhla PROPERTIES CUDA_ARCHITECTURES "${MHLA_CUDA_ARCHITECTURES}" CUDA_RUNTIME_LIBRARY None)
if(MHLA_CUDA_ARCHITECTURES MATCHES "90a")
  set_property(SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/cuda/support/hopper/device.cu
               APPEND PROPERTY COMPILE_DEFINITIONS MHLA_HOPPER)
endif()
target_compile_options(mhla PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
target_link_libraries(mhla PRIVATE CUDA::cudart_static)
target_link_options(mhla PRIVATE -Wl,--exclude-libs,libcudart_static.a)
