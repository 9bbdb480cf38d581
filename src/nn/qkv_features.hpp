// From the product that makes queries, keys and values to what the attention takes.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "mhla/types.hpp"

namespace mhla::nn {

struct QkvFeaturesOptions {
  std::int64_t heads = 1;
  double norm_eps = 1e-6;
  FeatureMap feature_map = FeatureMap::relu;
  double feature_eps = 0.0;
};

struct Qkv {
  at::Tensor q, k, v;  // [B, N, H, D]
  at::Tensor v_again;  // the same as v, for a second use: gradients of the two are added on the way
};

// q and k normalised over all channels (RMSNorm with these weights, [C]; undefined: not normalised) and mapped, v as it
// is. qkv: [B, N, 3 C].
Qkv qkv_features(const at::Tensor& qkv, const at::Tensor& q_weight, const at::Tensor& k_weight,
                 const QkvFeaturesOptions& options);

}  // namespace mhla::nn
