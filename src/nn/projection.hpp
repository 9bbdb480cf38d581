// Products and activations of models that make their tokens one by one. Without gradients on the CPU, in float32 or
// float64, what one token of every row (T = 1) gives is the same to the bit in any batch.
#pragma once

#include <torch/torch.h>

namespace mhla::nn {

// x: [B, T, .., from] -> [B, T, .., to]
at::Tensor projected(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
inline at::Tensor projected(const at::Tensor& x, const torch::nn::Linear& layer) {
  return projected(x, layer->weight, layer->bias);
}

// silu(x). torch has other roundings for the last elements of a tensor, wherever its rows end.
at::Tensor silu_of(const at::Tensor& x);

// Whether x is one token of every row in such a place.
bool bits_of_rows(const at::Tensor& x);

}  // namespace mhla::nn
