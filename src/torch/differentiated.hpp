// Whether autograd has to record a call.
#pragma once

#include <torch/csrc/autograd/functions/utils.h>
#include <torch/torch.h>

#include <optional>

namespace mhla::dispatch {

// In backward mode, or in forward mode, which an autograd function of ours refuses.
inline bool differentiated(const std::optional<at::Tensor>& tensor) {
  if (!tensor) return false;
  return (tensor->requires_grad() && at::GradMode::is_enabled()) || torch::autograd::isFwGradDefined(tensor);
}

}  // namespace mhla::dispatch
