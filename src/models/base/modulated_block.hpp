// One block of a diffusion transformer: two branches, each scaled, shifted and gated by the condition (adaLN-zero).
#pragma once

#include <torch/torch.h>

#include "nn/convolution.hpp"
#include "nn/grid.hpp"
#include "nn/modulated.hpp"

namespace mhla::models {

class ModulatedBlock : public torch::nn::Module {
 public:
  ModulatedBlock(std::int64_t dim, bool cpe) : modulation(dim, 6 * dim) {
    register_module("adaLN_modulation", torch::nn::Sequential(torch::nn::SiLU(), modulation));
    if (cpe) dw_conv = register_module("dw_conv", nn::depthwise(dim, 3));
  }

  // x: [B, N, C]; condition: silu(c), [B, C].
  at::Tensor forward(at::Tensor x, const at::Tensor& condition, nn::Grid grid) {
    const auto parts = modulation->forward(condition).chunk(6, 1);
    const auto &shift_1 = parts[0], &scale_1 = parts[1], &gate_1 = parts[2];
    const auto &shift_2 = parts[3], &scale_2 = parts[4], &gate_2 = parts[5];
    const nn::Branch tokens = mixed_tokens(nn::modulated(x, {scale_1, shift_1}), grid);
    const auto [sum, normed] = nn::add_modulated(x, tokens, gate_1, {scale_2, shift_2});
    x = nn::add_gated(sum, mixed_channels(normed), gate_2);
    return dw_conv ? nn::convolved(dw_conv, x, grid) : x;
  }

  virtual at::Tensor mixing() { return {}; }  // the parameter [M, M, 1, 1]; undefined without one

  virtual void initialise() {}  // initial values that differ from those of DiffusionTransformer

  torch::nn::Linear modulation;
  torch::nn::Conv2d dw_conv = nullptr;  // the convolution of CPE

 protected:
  virtual nn::Branch mixed_tokens(const at::Tensor& x, nn::Grid grid) = 0;  // attention
  virtual nn::Branch mixed_channels(const at::Tensor& x) = 0;               // MLP
};

}  // namespace mhla::models
