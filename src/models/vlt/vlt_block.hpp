// One block of the vision linear transformer: local positions, attention, feed-forward with a local step.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "models/vlt/vlt_attention.hpp"
#include "nn/norm.hpp"

namespace mhla::models {

class VltFeedForwardImpl : public torch::nn::Module {
 public:
  VltFeedForwardImpl(std::int64_t dim, std::int64_t hidden);

  at::Tensor forward(const at::Tensor& x, nn::Grid grid);

 private:
  torch::nn::Conv2d fc1_, dwconv_, fc2_;
};
TORCH_MODULE(VltFeedForward);

class VltBlock : public torch::nn::Module {
 public:
  VltBlock(const VltAttentionOptions& options, double layer_scale);

  // x: [B, N, C]; drop: factors of the two branches, [2, B], or undefined.
  at::Tensor forward(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary, const at::Tensor& drop);
  at::Tensor attention_weights(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary);
  at::Tensor mixing() { return attn_->mixing(); }

 private:
  at::Tensor with_positions(const at::Tensor& x, nn::Grid grid);

  torch::nn::Conv2d pos_;
  nn::Norm norm1_, norm2_;
  std::shared_ptr<VltAttention> attn_;
  VltFeedForward ffn_;
  at::Tensor gamma_1_, gamma_2_;
};

}  // namespace mhla::models
