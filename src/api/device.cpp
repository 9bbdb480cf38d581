// The devices of this machine.
#include <fstream>
#include <string>

#include "cuda/attention.hpp"
#include "mhla/attention.hpp"

namespace mhla {
namespace {

std::string cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      const auto value = line.find_first_not_of(" \t", line.find(':') + 1);
      if (value != std::string::npos) return line.substr(value);
    }
  return "unknown CPU";
}

}  // namespace

int device_count(Device device) { return device == Device::cuda ? cuda::device_count() : 1; }

std::string device_description(Device device, int index) {
  const int count = device_count(device);
  if (count == 0) throw Error("device is cuda, but there is no GPU, no driver, or this build has no CUDA back end");
  if (index < 0 || index >= count)
    throw Error("index is " + std::to_string(index) + "; it must be " +
                (count == 1 ? "0" : "0 to " + std::to_string(count - 1)));
  return device == Device::cuda ? cuda::device_description(index) : cpu_name();
}

}  // namespace mhla
