// Shared memory beyond the 48 KiB every kernel has, granted once per kernel and device.
#include <mutex>
#include <set>
#include <utility>

#include "cuda/support/launch.hpp"

namespace mhla::cuda {

void grant_shared_memory(const void* kernel, const char* name) {
  static std::mutex mutex;
  static std::set<std::pair<const void*, int>> granted;
  int device = 0;
  check(cudaGetDevice(&device), name);
  const std::lock_guard lock(mutex);
  if (granted.contains({kernel, device})) return;
  int most = 0;
  cudaFuncAttributes attributes{};
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), name);
  check(cudaFuncGetAttributes(&attributes, kernel), name);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             most - static_cast<int>(attributes.sharedSizeBytes)),
        name);
  granted.insert({kernel, device});
}

}  // namespace mhla::cuda
