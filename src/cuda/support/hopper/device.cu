// What the current device offers, asked for once where asking is slow.
#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "cuda/support/hopper/device.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {

bool available() {
#ifdef MHLA_HOPPER
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "current device");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "compute capability");
  constexpr int kHopper = 9;
  return major == kHopper;
#else
  return false;
#endif
}

int multiprocessors() {
  int device = 0, count = 0;
  check(cudaGetDevice(&device), "current device");
  check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device), "multiprocessors");
  return count;
}

int stages_that_fit(int blocks, int fixed_bytes, int stage_bytes, int most) {
  constexpr int kSharedBytes = 228 * 1024, kReserved = 1024;  // of a multiprocessor; of every thread block
  const int left = kSharedBytes / blocks - kReserved - fixed_bytes;
  return std::clamp(left / stage_bytes, 1, most);
}

int clusters_at_once(const void* kernel, int size, int threads, int shared_bytes) {
  constexpr const char* kWhat = "clusters of thread blocks";
  static std::mutex mutex;
  static std::map<std::pair<const void*, int>, int> known;
  int device = 0;
  check(cudaGetDevice(&device), kWhat);
  const std::lock_guard lock(mutex);
  int& count = known[{kernel, device}];
  if (count > 0) return count;
  grant_shared_memory(kernel, kWhat);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(size);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(multiprocessors() / size * size));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.attrs = &cluster;
  config.numAttrs = 1;
  check(cudaOccupancyMaxActiveClusters(&count, kernel, &config), kWhat);
  return count;
}

}  // namespace mhla::cuda::hopper
