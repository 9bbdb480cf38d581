// One block of the diffusion transformer: attention on the grid, and an MLP.
#pragma once

#include <torch/torch.h>

#include "models/base/modulated_block.hpp"
#include "nn/attention.hpp"
#include "nn/mlp.hpp"

namespace mhla::models {

class DitBlock : public ModulatedBlock {
 public:
  static constexpr std::int64_t kMlpRatio = 4;

  DitBlock(const nn::GridAttentionOptions& attention, bool cpe)
      : ModulatedBlock(attention.dim, cpe),
        attn(register_module("attn", std::make_shared<nn::GridAttention>(attention))),
        mlp(register_module("mlp", nn::Mlp(attention.dim, kMlpRatio * attention.dim, nn::Gelu::tanh))) {}

  at::Tensor mixing() override { return attn->mixing(); }

  std::shared_ptr<nn::GridAttention> attn;
  nn::Mlp mlp;

 protected:
  nn::Branch mixed_tokens(const at::Tensor& x, nn::Grid grid) override { return attn->forward(x, grid); }
  nn::Branch mixed_channels(const at::Tensor& x) override { return mlp->forward(x); }
};

}  // namespace mhla::models
