// Where a call of libmhla runs when its tensors are torch's. No CUDA header is needed: torch's device-independent
// interface gives the current stream.
#pragma once

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include "mhla/attention.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch {

inline Device mhla_device(const at::Tensor& tensor) { return tensor.is_cuda() ? Device::cuda : Device::cpu; }

// Where a call runs: on the threads of torch, or on the current stream of the device its tensors are on.
class TorchExecution {
 public:
  explicit TorchExecution(const at::Tensor& tensor) : device_(tensor.device()) {
    if (device_.is_cpu()) {
      parallel_ = torch_parallel();
    } else {
      guard_.reset_device(device_);
      stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
    }
  }

  int threads() const { return parallel_.threads; }

  // The memory is torch's and stays in use, in the order of the stream, for what was enqueued before it is freed. torch
  // aligns it as a workspace must be.
  Execution run(std::size_t workspace_bytes) {
    if (workspace_bytes > 0) {
      workspace_ =
          at::empty({static_cast<std::int64_t>(workspace_bytes)}, at::TensorOptions(at::kByte).device(device_));
    }
    return {.workspace = workspace_bytes > 0 ? workspace_.mutable_data_ptr() : nullptr,
            .workspace_bytes = workspace_bytes,
            .parallel = device_.is_cpu() ? &parallel_ : nullptr,
            .stream = stream_};
  }

 private:
  at::Device device_;
  c10::OptionalDeviceGuard guard_;
  Parallel parallel_;
  void* stream_ = nullptr;
  at::Tensor workspace_;
};

}  // namespace mhla::dispatch
