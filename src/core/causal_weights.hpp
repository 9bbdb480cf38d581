// Weights of a causal mixing matrix beyond the blocks it was trained for, one entry at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mhla/mixing.hpp"

namespace mhla {

// Entry (block, source), source <= block, under a policy whose entries do not depend on one another: all but
// `interpolate`, and `error` within the trained blocks. The matrix is [trained, trained].
template <typename T>
T causal_weight(const T* mixing, std::int64_t trained, std::int64_t block, std::int64_t source, BeyondTrained beyond) {
  if (block < trained) return mixing[block * trained + source];
  if (beyond == BeyondTrained::running_mean) return T(1) / static_cast<T>(block + 1);
  const std::int64_t last = trained - 1;
  const std::int64_t distance = block - source;
  return mixing[last * trained + (distance < last ? last - distance : 0)];
}

// The row of the policy `interpolate`: the last trained row stretched to `entries` entries, its sum kept.
std::vector<double> stretched_row(std::span<const double> last_row, std::int64_t entries);

}  // namespace mhla
