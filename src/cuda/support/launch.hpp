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

// All the shared memory a thread block can have, for this kernel on the current device: the same for every launch, so
// that host threads do not get in each other's way.
void grant_shared_memory(const void* kernel, const char* name);

template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, int threads, std::size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  constexpr std::size_t kGranted = 48 * 1024;
  if (shared_bytes > kGranted) grant_shared_memory(reinterpret_cast<const void*>(kernel), name);
  kernel<<<grid, static_cast<unsigned>(threads), shared_bytes, stream>>>(static_cast<Arguments&&>(arguments)...);
  check(cudaGetLastError(), name);
}

}  // namespace mhla::cuda
