#include <algorithm>

#include "cuda/hopper/device.hpp"
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

}  // namespace mhla::cuda::hopper
