// The GPUs of this machine.
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

#include "cuda/attention.hpp"

namespace mhla::cuda {

int device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  static_cast<void>(cudaGetLastError());  // no driver is no error of a later call
  return 0;
}

std::string device_description(int device) {
  cudaDeviceProp properties{};
  const cudaError_t status = cudaGetDeviceProperties(&properties, device);
  if (status != cudaSuccess)
    throw std::runtime_error("device " + std::to_string(device) + ": " + cudaGetErrorString(status));
  constexpr std::size_t kGiB = std::size_t{1} << 30;
  return std::string(properties.name) + ", " + std::to_string((properties.totalGlobalMem + kGiB / 2) / kGiB) +
         " GiB, " + std::to_string(properties.multiProcessorCount) + " SMs, compute capability " +
         std::to_string(properties.major) + "." + std::to_string(properties.minor);
}

}  // namespace mhla::cuda
