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

// x times y thread blocks, out of 64-bit products; more than a launch can have is an error.
inline dim3 grid_of(const char* name, std::int64_t x, std::int64_t y = 1) {
  constexpr std::int64_t kMostX = 0x7fffffff, kMostY = 0xffff;
  if (x > kMostX || y > kMostY)
    throw Error(std::string("CUDA: ") + name + " needs " + std::to_string(x) + " x " + std::to_string(y) +
                " thread blocks; a launch has at most 2^31 - 1 x 65535");
  return {static_cast<unsigned>(x), static_cast<unsigned>(y)};
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
