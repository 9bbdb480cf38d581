// What designs of models on a grid of tokens share: their attention layers, and how many elements they have.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "mhla/torch.hpp"
#include "nn/attention.hpp"

namespace mhla::models {

// Asked for where a layer has a mixing matrix; other models need not fit their blocks.
using PartitionOf = std::function<Partition()>;

// The layer `kind` as the options of a family have it: its mixing matrix, and the authors' numerics in their preset.
template <typename Options>
nn::GridAttentionOptions grid_attention(const Options& options, std::int64_t width, std::int64_t heads,
                                        nn::AttentionKind kind, const PartitionOf& partition) {
  nn::GridAttentionOptions result{.dim = width, .heads = heads, .kind = kind};
  if (kind != nn::AttentionKind::mhla) return result;
  result.partition = partition();
  result.mixing =
      mixing_tensor(result.partition, parse_mixing_init(options.mixing_init), {.sigma = options.mixing_sigma});
  result.mixing_frozen = options.mixing_frozen;
  result.mixing_by_input = options.mixing == "input";
  if (options.preset == "authors") {
    result.inner_norm = true;
    result.normalizer = Normalizer::authors;
    result.norm_eps = std::numeric_limits<float>::epsilon();
    result.feature_eps = 1e-6;
  }
  return result;
}

// `squares` of width x width in every layer, the mixing matrices of Kind::mhla, and `rows` of the width.
template <typename Kind>
double grid_model_elements(double squares, std::int64_t width, const std::vector<Kind>& attention,
                           const PartitionOf& partition, std::int64_t rows) {
  const auto channels = static_cast<double>(width), layers = static_cast<double>(attention.size());
  const auto mixed = static_cast<double>(std::ranges::count(attention, Kind::mhla));
  const double matrix = mixed > 0 ? std::pow(static_cast<double>(partition().blocks()), 2) : 0.0;
  return squares * channels * channels * layers + mixed * matrix + channels * static_cast<double>(rows);
}

}  // namespace mhla::models
