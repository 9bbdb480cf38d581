// Convolutions on tokens: [B, N, C] in, [B, N, C] out, without leaving the tokens' layout in memory.
#pragma once

#include <torch/torch.h>

#include "nn/grid.hpp"

namespace mhla::nn {

// One filter of side x side (odd) per channel, padded so that the grid keeps its size.
inline torch::nn::Conv2d depthwise(std::int64_t channels, std::int64_t side) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, side).groups(channels).padding(side / 2));
}
// base + the convolution of the tokens.
at::Tensor add_convolved(const at::Tensor& base, torch::nn::Conv2d& convolution, const at::Tensor& tokens, Grid grid);
// The convolution of the tokens alone; on a GPU in the tokens' own type, also under autocast.
at::Tensor convolved(torch::nn::Conv2d& convolution, const at::Tensor& tokens, Grid grid);

// A 1x1 convolution is a linear layer.
inline torch::nn::Conv2d pointwise(std::int64_t from, std::int64_t to) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 1));
}
inline at::Tensor projected(torch::nn::Conv2d& convolution, const at::Tensor& tokens) {
  return at::linear(tokens, convolution->weight.flatten(1), convolution->bias);
}

}  // namespace mhla::nn
