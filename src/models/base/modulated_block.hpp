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
  void forward(nn::GatedStream& x, const at::Tensor& condition, nn::Grid grid) {
    const auto parts = modulation->forward(condition).chunk(6, 1);
    const auto &shift_1 = parts[0], &scale_1 = parts[1], &gate_1 = parts[2];
    const auto &shift_2 = parts[3], &scale_2 = parts[4], &gate_2 = parts[5];
    x.add(mixed_tokens(x.modulated({scale_1, shift_1}), grid), gate_1);
    x.add(mixed_channels(x.modulated({scale_2, shift_2})), gate_2);
    if (dw_conv) x = nn::GatedStream(nn::convolved(dw_conv, x.value(), grid));
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
