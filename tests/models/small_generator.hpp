// A generator that is quick to draw with, of pictures of 8 x 8 pixels in four classes.
#pragma once

#include <memory>
#include <string>

#include "models/generators.hpp"

namespace mhla::models::testing {

inline std::shared_ptr<Generator> small_generator(std::int64_t channels = 3) {
  torch::manual_seed(1);
  GeneratorOptions options;
  options.size = {8, 8};
  options.channels = channels;
  options.classes = 4;
  options.width = 32;
  options.depth = 2;
  options.heads = 2;
  options.blocks = {2, 2};
  auto model = make_generator(options);
  const torch::NoGradGuard no_gradient;
  for (auto& item : model->named_parameters())  // new blocks do nothing
    if (item.key() != "pos_embed" && !item.key().ends_with("conv.weight"))
      item.value().add_(torch::randn_like(item.value()) * 0.1);
  return model;
}

}  // namespace mhla::models::testing
