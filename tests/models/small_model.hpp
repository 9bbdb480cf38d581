// A classifier small enough for a test, and images for it.
#pragma once

#include <torch/torch.h>

#include "models/base/classifier.hpp"
#include "support/relative_error.hpp"

namespace mhla::models::testing {

inline ClassifierOptions small_options() {
  ClassifierOptions options;
  options.image_size = {32, 32};
  options.patch = 4;
  options.classes = 5;
  options.blocks = {2, 2};
  options.width = 24;
  options.depth = 2;
  options.heads = 3;
  return options;
}

inline at::Tensor images(std::int64_t batch, std::int64_t height, std::int64_t width) {
  return torch::randn({batch, 3, height, width}, at::make_generator<at::CPUGeneratorImpl>(7));
}

inline std::int64_t parameter_count(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

using mhla::testing::relative_error;

// Every parameter at random, so that no zero hides an error; mixing matrices stay in [0, 1].
inline void shake(torch::nn::Module& module) {
  const torch::NoGradGuard no_gradient;
  for (auto& item : module.named_parameters())
    is_mixing(item.key()) ? item.value().uniform_(0.0, 1.0) : item.value().add_(torch::randn_like(item.value()) * 0.2);
}

}  // namespace mhla::models::testing
