// One block of the diffusion transformer: attention and MLP, each scaled, shifted and gated by the condition
// (adaLN-zero).
#pragma once

#include <torch/torch.h>

#include "mhla/fused_torch.hpp"
#include "nn/attention.hpp"
#include "nn/convolution.hpp"
#include "nn/mlp.hpp"

namespace mhla::models {

class DitBlock : public torch::nn::Module {
 public:
  static constexpr std::int64_t kMlpRatio = 4;

  DitBlock(const nn::GridAttentionOptions& attention, bool cpe)
      : attn(register_module("attn", std::make_shared<nn::GridAttention>(attention))),
        mlp(register_module("mlp", nn::Mlp(attention.dim, kMlpRatio * attention.dim, nn::Gelu::tanh))),
        modulation(torch::nn::Linear(attention.dim, 6 * attention.dim)) {
    register_module("adaLN_modulation", torch::nn::Sequential(torch::nn::SiLU(), modulation));
    if (cpe) dw_conv = register_module("dw_conv", nn::depthwise(attention.dim, 3));
  }

  // x: [B, N, C]; condition: silu(c), [B, C].
  at::Tensor forward(at::Tensor x, const at::Tensor& condition, nn::Grid grid) {
    const auto parts = modulation->forward(condition).chunk(6, 1);
    const auto &shift_1 = parts[0], &scale_1 = parts[1], &gate_1 = parts[2];
    const auto &shift_2 = parts[3], &scale_2 = parts[4], &gate_2 = parts[5];
    x = x + gate_1.unsqueeze(1) * attn->forward(fused::modulate(x, scale_1, shift_1), grid).sum();
    x = x + gate_2.unsqueeze(1) * mlp->forward(fused::modulate(x, scale_2, shift_2)).sum();
    return dw_conv ? nn::as_tokens(dw_conv->forward(nn::as_image(x, grid))) : x;
  }

  std::shared_ptr<nn::GridAttention> attn;
  nn::Mlp mlp;
  torch::nn::Linear modulation;
  torch::nn::Conv2d dw_conv = nullptr;  // the convolution of CPE
};

}  // namespace mhla::models
