// Language models small enough for a test: four blocks of eight tokens.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/lm/lm.hpp"
#include "models/small_model.hpp"

namespace mhla::models::testing {

inline LmOptions small_lm_options(std::vector<std::string> attention = {"mhla"}) {
  LmOptions options;
  options.model = "lm_tiny";
  options.attention = std::move(attention);
  options.vocabulary = 50;
  options.width = 32;
  options.depth = 2;
  options.heads = 2;
  options.mlp_width = 24;
  options.block_size = 8;
  options.blocks = 4;
  return options;
}

// With every parameter at random.
inline std::shared_ptr<Lm> small_lm(const LmOptions& options) {
  torch::manual_seed(3);
  auto model = std::make_shared<Lm>(options);
  shake(*model);
  model->eval();
  return model;
}

inline at::Tensor random_ids(std::int64_t batch, std::int64_t tokens, std::uint64_t seed = 5) {
  return torch::randint(0, 50, {batch, tokens}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong);
}

// Every kind of attention, with and without what goes with it, and a hybrid of three.
inline std::vector<LmOptions> all_small_lms() {
  std::vector<LmOptions> all;
  for (const char* attention : {"softmax", "linear", "gla", "mhla"}) all.push_back(small_lm_options({attention}));
  LmOptions hybrid = small_lm_options({"mhla", "softmax", "gla"});
  hybrid.depth = 3;
  hybrid.kv_heads = 1;
  hybrid.short_convolution = true;
  hybrid.tied = false;
  all.push_back(hybrid);
  LmOptions wide = small_lm_options({"mhla", "linear"});
  wide.feature_map = "hedgehog";
  wide.output_gate = false;
  wide.short_convolution = true;
  all.push_back(wide);
  return all;
}

inline std::string description(const LmOptions& options) {
  std::string text;
  for (const std::string& word : options.attention) text += word + " ";
  return text + options.feature_map + " " + options.beyond;
}

}  // namespace mhla::models::testing
