// What a model name, its options and a choice of attention amount to.
#pragma once

#include <string>
#include <vector>

#include "models/lm/lm_options.hpp"
#include "nn/causal/attention.hpp"

namespace mhla::models {

struct LmDesign {
  // Throws an Error that names the first option that does not work out.
  explicit LmDesign(const LmOptions& options);

  double least_elements() const;  // of the model's tensors

  nn::CausalOptions attention_options(std::size_t layer) const;

  LmOptions options;
  std::int64_t width = 0, depth = 0, mlp_width = 0;
  std::vector<nn::CausalKind> attention;  // per layer

 private:
  struct Heads {
    std::int64_t all, kv, key_width, value_width;
  };
  Heads heads_of(nn::CausalKind kind) const;

  std::int64_t own_heads_ = 0, own_softmax_heads_ = 0;
};

std::vector<std::string> lm_names();  // lm_tiny, lm_small, lm_base, lm_340m

}  // namespace mhla::models
