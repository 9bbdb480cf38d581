// A causal convolution of every channel by itself over the last few tokens, then silu.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "nn/causal/line.hpp"

namespace mhla::nn {

class ShortConvolutionImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kTaps = 4;

  explicit ShortConvolutionImpl(std::int64_t channels);

  // x: [B, T, C]. Documents do not see each other. `before`: the kTaps - 1 tokens before x, [B, kTaps - 1, C], brought
  // up to date in place; undefined: zeros.
  at::Tensor forward(const at::Tensor& x, const Line& line, const at::Tensor& before = {});

  at::Tensor weight;  // [C, 1, kTaps], the last tap is that of the token itself
};
TORCH_MODULE(ShortConvolution);

}  // namespace mhla::nn
