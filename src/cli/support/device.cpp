// Choice and names of devices.
#include "cli/support/device.hpp"

#include <fmt/format.h>

#include "cli/commands.hpp"
#include "cli/support/machine.hpp"
#include "mhla/attention.hpp"

namespace mhla::cli {

CLI::Option* add_device_option(CLI::App& command, std::string& device) {
  return command.add_option("--device", device, "Device to run on; auto is a GPU where there is one")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->type_name("NAME")
      ->capture_default_str();
}

CLI::Option* add_cpu_or_cuda_option(CLI::App& command, std::string& device) {
  return command.add_option("--device", device, "Device to run on; cuda is the first GPU")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->type_name("NAME")
      ->capture_default_str();
}

CLI::Option* add_amp_option(CLI::App& command, std::string& amp) {
  return command.add_option("--amp", amp, "Type of matrix products; none is float32, auto is bf16 on a GPU")
      ->check(CLI::IsMember({"auto", "bf16", "none"}))
      ->type_name("NAME")
      ->capture_default_str();
}

at::Device choose_device(const std::string& device, int local_rank) {
  const int gpus = static_cast<int>(torch::cuda::device_count());  // NOLINT(bugprone-signed-char-misuse): an int8_t
  if (device == "cuda" && gpus == 0)
    throw UsageError(
        "--device is cuda, but there is no GPU, no driver, or this program's torch was built without CUDA");
  if (device == "cpu" || gpus == 0) return at::kCPU;
  if (local_rank >= gpus)
    throw UsageError(
        fmt::format("{} or more processes on a machine with {} GPUs; each needs one of its own", local_rank + 1, gpus));
  return {at::kCUDA, static_cast<c10::DeviceIndex>(local_rank)};
}

std::string device_name(at::Device device) {
  if (device.is_cpu()) return machine_line();
  // Without a CUDA back end of ours, torch alone may have one.
  return device_count(Device::cuda) > device.index() ? device_description(Device::cuda, device.index()) : device.str();
}

bool uses_bf16(const std::string& amp, at::Device device) {
  return amp == "bf16" || (amp == "auto" && device.is_cuda());
}

}  // namespace mhla::cli
