// Kernels that start while the one ahead of them in the stream ends, on sm_90 and later.
#pragma once

#include "cuda/support/launch.hpp"

namespace mhla::cuda {

// The kernel begins with wait_for_work_ahead(); before it nothing is read or written, but prefetches to the L2 cache.
template <typename... Parameters, typename... Arguments>
void launch_early(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t shared_bytes,
                  cudaStream_t stream, Arguments&&... arguments) {
  if (grid.x == 0) return;
  grant_shared_memory(reinterpret_cast<const void*>(kernel), name);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Arguments&&>(arguments)...), name);
}

// By all threads; from then on the kernel after this one may start in the same way.
__device__ inline void wait_for_work_ahead() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\ngriddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace mhla::cuda
