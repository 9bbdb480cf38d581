// One block of the toy: x + attention(norm(x)) on a line of tokens.
#pragma once

#include "mhla/torch.hpp"
#include "models/toy_family/toy_config.hpp"

namespace mhla::models::testing {

class ToyBlock : public torch::nn::Module {
 public:
  explicit ToyBlock(const ToyConfig& config)
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width()})))),
        attention(register_module(
            "attention", mhla::nn::MultiHeadLinearAttention(mhla::nn::MultiHeadLinearAttentionOptions(
                             config.width(), 2, Partition::line(config.tokens, config.tokens / config.blocks))))) {}

  at::Tensor forward(const at::Tensor& x) { return x + attention->forward(norm->forward(x)); }

  torch::nn::LayerNorm norm;
  mhla::nn::MultiHeadLinearAttention attention;
};

}  // namespace mhla::models::testing
