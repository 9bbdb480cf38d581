// Launching kernels: errors become exceptions, dynamic shared memory is granted when it is needed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "mhla/types.hpp"

namespace mhla::cuda {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr std::size_t kGranted = 48 * 1024;
  if (shared_bytes > kGranted) {
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)),
          name);
  }
  kernel<<<grid, static_cast<unsigned>(threads), shared_bytes, stream>>>(static_cast<Arguments&&>(arguments)...);
  check(cudaGetLastError(), name);
}

}  // namespace mhla::cuda
