// The operator composed of plain torch functions, by its O(N^2) definition: what the tests compare with.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "mhla/torch.hpp"

namespace mhla::test {

inline at::Tensor phi(const at::Tensor& x, FeatureMap map) {
  switch (map) {
    case FeatureMap::identity:
      return x;
    case FeatureMap::relu:
      return x.relu();
    case FeatureMap::elu_plus_one:
      return torch::elu(x) + 1;
    case FeatureMap::exp:
      return x.exp();
    case FeatureMap::squared_relu:
      return x.relu().square();
  }
  throw Error("unknown feature map");
}

// Normalizers none and paper; mixing [M, M].
inline at::Tensor composed_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& mixing, const AttentionOptions& options) {
  const Partition& partition = options.partition;
  std::vector<std::int64_t> blocks;
  for (std::int64_t token = 0; token < partition.tokens(); ++token) blocks.push_back(partition.block_of(token));
  const at::Tensor block = torch::tensor(blocks, at::kLong).to(q.device());
  at::Tensor weight = mixing.index({block}).index({at::indexing::Slice(), block});
  if (options.masking == Masking::token_causal) weight = weight.tril();
  if (options.masking == Masking::block_causal) {
    weight = weight * (block.unsqueeze(1) >= block.unsqueeze(0)).to(weight.scalar_type());
  }
  const std::int64_t group = q.size(2) / k.size(2);
  const at::Tensor phi_q = options.scale * (phi(q, options.feature_map) + options.feature_eps);
  const at::Tensor phi_k = (phi(k, options.feature_map) + options.feature_eps).repeat_interleave(group, 2);
  const at::Tensor scores = torch::einsum("bthd,bshd->bhts", {phi_q, phi_k}) * weight;
  const at::Tensor o = torch::einsum("bhts,bshe->bthe", {scores, v.repeat_interleave(group, 2)});
  if (options.normalizer == Normalizer::none) return o;
  return o / (scores.sum(-1).transpose(1, 2) + options.eps).unsqueeze(-1);
}

}  // namespace mhla::test
