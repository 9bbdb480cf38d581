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
constexpr T causal_weight(const T* mixing, std::int64_t trained, std::int64_t block, std::int64_t source,
                          BeyondTrained beyond) {
  if (block < trained) return mixing[block * trained + source];
  if (beyond == BeyondTrained::running_mean) return T(1) / static_cast<T>(block + 1);
  const std::int64_t last = trained - 1;
  const std::int64_t distance = block - source;
  return mixing[last * trained + (distance < last ? last - distance : 0)];
}

// Two neighbouring source indices and how far the point lies towards the second.
struct Between {
  std::int64_t first, second;
  double fraction;
};

// The centre of cell `index` of `to` equal cells, in cells of a line of `from`: (index + 1/2) from / to - 1/2, kept
// within the line. Integer arithmetic until the last step, so that from == to gives whole cells.
constexpr Between relative_position(std::int64_t index, std::int64_t to, std::int64_t from) {
  const std::int64_t numerator = (2 * index + 1) * from - to;
  if (numerator <= 0) return {0, 0, 0.0};
  const std::int64_t cell = numerator / (2 * to);
  if (cell >= from - 1) return {from - 1, from - 1, 0.0};
  return {cell, cell + 1, static_cast<double>(numerator % (2 * to)) / static_cast<double>(2 * to)};
}

// The row of the policy `interpolate`: the last trained row stretched to `entries` entries, its sum kept.
std::vector<double> stretched_row(std::span<const double> last_row, std::int64_t entries);

}  // namespace mhla
