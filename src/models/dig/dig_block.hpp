// One block of DiG: GLA along the scan or MHLA on the grid, a gated MLP, and a convolution.
#pragma once

#include <torch/torch.h>

#include "models/base/modulated_block.hpp"
#include "models/dig/gla_attention.hpp"
#include "nn/attention.hpp"
#include "nn/mlp.hpp"

namespace mhla::models {

class DigBlock : public ModulatedBlock {
 public:
  // Two thirds of four times the width, rounded up to a multiple of 256.
  static std::int64_t hidden(std::int64_t width) { return (8 * width / 3 + 255) / 256 * 256; }

  DigBlock(std::int64_t width, std::int64_t heads) : DigBlock(width) {
    gla = register_module("attn", GlaAttention(width, heads));
  }
  explicit DigBlock(const nn::GridAttentionOptions& attention) : DigBlock(attention.dim) {
    mhla = register_module("attn", std::make_shared<nn::GridAttention>(attention));
  }

  at::Tensor mixing() override { return mhla ? mhla->mixing() : at::Tensor(); }
  void initialise() override {
    if (gla) gla->initialise();
  }

  GlaAttention gla = nullptr;
  std::shared_ptr<nn::GridAttention> mhla;
  nn::SwiGlu mlp;

 protected:
  nn::Branch mixed_tokens(const at::Tensor& x, nn::Grid grid) override {
    return gla ? nn::Branch{gla->forward(x)} : mhla->forward(x, grid);
  }
  nn::Branch mixed_channels(const at::Tensor& x) override { return {mlp->forward(x)}; }

 private:
  explicit DigBlock(std::int64_t width)
      : ModulatedBlock(width, /*cpe=*/true), mlp(register_module("mlp", nn::SwiGlu(width, hidden(width)))) {}
};

}  // namespace mhla::models
