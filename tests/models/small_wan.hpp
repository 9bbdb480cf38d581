// A video transformer small enough for a test, and inputs for it.
#pragma once

#include <memory>

#include "models/small_model.hpp"
#include "models/wan/wan.hpp"

namespace mhla::models::testing {

inline WanOptions small_wan_options(std::vector<std::string> attention = {"mhla"}) {
  WanOptions options;
  options.model = "wan_tiny";
  options.attention = std::move(attention);
  options.size = {4, 8, 12};
  options.blocks = {2, 2, 3};
  options.channels = options.out_channels = 3;
  options.text_width = 10;
  options.text_tokens = 7;
  options.width = 24;
  options.depth = 2;
  options.heads = 2;
  options.mlp_width = 40;
  options.frequencies = 16;
  return options;
}

// No parameter is zero, so that none can hide an error.
inline std::shared_ptr<Wan> small_wan(const WanOptions& options) {
  torch::manual_seed(1);
  auto model = std::make_shared<Wan>(options);
  shake(*model);
  return model;
}

struct WanInputs {
  at::Tensor x, t;
  std::vector<at::Tensor> states;
};

inline WanInputs wan_inputs(std::vector<std::int64_t> size, std::int64_t batch = 2) {
  WanInputs inputs{torch::randn({batch, 3, size[0], size[1], size[2]}), torch::rand({batch}) * 1000.0, {}};
  for (std::int64_t row = 0; row < batch; ++row) inputs.states.push_back(torch::randn({5 + row, 10}));
  return inputs;
}

}  // namespace mhla::models::testing
