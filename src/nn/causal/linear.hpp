// Small pieces that causal layers share.
#pragma once

#include <torch/torch.h>

namespace mhla::nn {

inline torch::nn::Linear without_bias(std::int64_t from, std::int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

// x: [B, T, from] -> [B, T, to]. Without gradients on the CPU, in float32 or float64, what one token of every row
// (T = 1) gives is the same to the bit in any batch.
at::Tensor projected(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias = {});
inline at::Tensor projected(const at::Tensor& x, const torch::nn::Linear& layer) {
  return projected(x, layer->weight, layer->bias);
}

// silu(x), likewise. torch has other roundings for the last elements of a tensor, wherever its rows end.
at::Tensor silu_of(const at::Tensor& x);

// Whether x is one token of every row in such a place.
bool bits_of_rows(const at::Tensor& x);

// [B, T, H D] -> [B, T, H, D]
inline at::Tensor by_head(const at::Tensor& x, std::int64_t heads) { return x.unflatten(2, {heads, -1}); }

// In which tables, sums and states are beside activations of this type.
inline at::ScalarType accumulation_of(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace mhla::nn
