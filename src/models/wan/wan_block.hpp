// One block of the video transformer: self attention, cross attention to the text, and an MLP. The time shifts, scales
// and gates the first and the last, in float32 whatever the stream is.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "models/wan/wan_attention.hpp"
#include "nn/mlp.hpp"
#include "nn/modulated.hpp"
#include "nn/norm.hpp"

namespace mhla::models {

class WanBlock : public torch::nn::Module {
 public:
  WanBlock(const WanAttentionOptions& attention, std::int64_t mlp_width)
      : modulation(register_parameter("modulation", torch::zeros({1, 6, attention.dim}))),
        self_attn(register_module("self_attn", std::make_shared<WanSelfAttention>(attention))),
        norm3(register_module("norm3", nn::Norm(nn::NormKind::layer, attention.dim, kNormEps))),
        cross_attn(register_module("cross_attn", std::make_shared<WanCrossAttention>(attention.dim, attention.heads))),
        mlp_(attention.dim, mlp_width, nn::Gelu::tanh) {
    register_module("ffn", torch::nn::Sequential(mlp_->fc1, torch::nn::GELU(), mlp_->fc2));
  }

  // x: [B, N, C]; time: [B, 6, C] in float32.
  at::Tensor forward(at::Tensor x, const at::Tensor& time, const WanKeysValues& text, VideoGrid grid,
                     const fused::RotaryTables& rotary) {
    const auto type = x.scalar_type();
    const auto parts = (modulation.to(time.scalar_type()) + time).unbind(1);
    const auto &shift_1 = parts[0], &scale_1 = parts[1], &gate_1 = parts[2];
    const auto &shift_2 = parts[3], &scale_2 = parts[4], &gate_2 = parts[5];
    const nn::Branch tokens = self_attn->forward(nn::modulated(x, {scale_1, shift_1}).to(type), grid, rotary);
    const auto [sum_1, normed_1] = nn::add_modulated(x, tokens, gate_1, as_modulation(norm3, time));
    x = sum_1.to(type);
    const nn::Branch words = cross_attn->forward(normed_1.to(type), text);
    const auto [sum_2, normed_2] = nn::add_modulated(x, words, at::ones_like(gate_1), {scale_2, shift_2});
    x = sum_2.to(type);
    return nn::add_gated(x, mlp_->forward(normed_2.to(type)), gate_2).to(type);
  }

  at::Tensor modulation;
  std::shared_ptr<WanSelfAttention> self_attn;
  nn::Norm norm3;
  std::shared_ptr<WanCrossAttention> cross_attn;

 private:
  static constexpr double kNormEps = 1e-6;

  // A norm's weight and bias are a scale and a shift that all rows share.
  static nn::Modulation as_modulation(const nn::Norm& norm, const at::Tensor& time) {
    const auto for_all = [&](const at::Tensor& row) {
      return row.to(time.scalar_type()).unsqueeze(0).expand({time.size(0), -1}).contiguous();
    };
    return {for_all(norm->weight.to(time.scalar_type()) - 1.0), for_all(norm->bias)};
  }

  nn::Mlp mlp_;  // its layers are those of "ffn"
};

}  // namespace mhla::models
