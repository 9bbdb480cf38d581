// Small pieces that causal layers share.
#pragma once

#include <torch/torch.h>

#include "nn/projection.hpp"

namespace mhla::nn {

inline torch::nn::Linear without_bias(std::int64_t from, std::int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

// [B, T, H D] -> [B, T, H, D]
inline at::Tensor by_head(const at::Tensor& x, std::int64_t heads) { return x.unflatten(2, {heads, -1}); }

// In which tables, sums and states are beside activations of this type.
inline at::ScalarType accumulation_of(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace mhla::nn
