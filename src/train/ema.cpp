// The average as one kernel over all tensors.
#include "train/ema.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mhla/types.hpp"

namespace mhla::train {

Ema::Ema(const torch::nn::Module& model, double decay) : decay_(decay) {
  if (!(decay > 0.0 && decay < 1.0))
    throw Error(fmt::format("decay of the weight average is {}; it must lie between 0 and 1", decay));
  for (const auto& [name, tensor] : named_tensors(model)) {
    if (!tensor.is_floating_point()) continue;
    names_.push_back(name);
    weights_.push_back(tensor);
    averages_.push_back(tensor.clone());
  }
}

void Ema::update(std::int64_t step) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<double>(step);
  at::_foreach_lerp_(averages_, weights_, 1.0 - std::min(decay_, (1.0 + count) / (10.0 + count)));
}

void Ema::exchange() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> held;
  held.reserve(weights_.size());
  for (const at::Tensor& tensor : weights_) held.push_back(tensor.clone());
  at::_foreach_copy_(weights_, averages_);
  at::_foreach_copy_(averages_, held);
}

NamedTensors Ema::state() const {
  NamedTensors state;
  for (std::size_t i = 0; i < names_.size(); ++i) state.emplace(names_[i], averages_[i]);
  return state;
}

}  // namespace mhla::train
