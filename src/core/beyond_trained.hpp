// What a causal layer does with blocks beyond those its matrix was trained for: which blocks keep a summary of their
// own, which are known by their sum, and what each weighs. What is constexpr runs on the CPU and on CUDA.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/sizes.hpp"
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

// Row `block` of a causal matrix; interpolated beyond the trained blocks it is the last trained row, stretched.
template <typename T>
struct MixingRow {
  const T* matrix = nullptr;  // [trained, trained]
  std::int64_t trained = 0;
  std::int64_t block = 0;
  BeyondTrained beyond = BeyondTrained::error;
  double stretch = 1;  // of an interpolated row: keeps the sum of the last trained one

  constexpr bool is_interpolated() const { return block >= trained && beyond == BeyondTrained::interpolate; }
  constexpr double last(std::int64_t b) const { return static_cast<double>(matrix[(trained - 1) * trained + b]); }
  constexpr double interpolated(std::int64_t b) const {
    const Between at = relative_position(b, block + 1, trained);
    return (1 - at.fraction) * last(at.first) + at.fraction * last(at.second);
  }
  // Given the sums of the last trained row and of interpolated(b), b <= block.
  constexpr void set_stretch(double trained_sum, double sum) {
    const double ratio = trained_sum / sum;
    stretch = ratio > 0 && ratio - ratio == 0 ? ratio : 1;
  }
  constexpr T operator[](std::int64_t b) const {
    return is_interpolated() ? static_cast<T>(stretch * interpolated(b))
                             : causal_weight(matrix, trained, block, b, beyond);
  }
};

// The row with its stretch.
template <typename T>
MixingRow<T> mixing_row(const T* matrix, std::int64_t trained, std::int64_t block, BeyondTrained beyond) {
  MixingRow<T> row{matrix, trained, block, beyond};
  if (!row.is_interpolated()) return row;
  double trained_sum = 0, sum = 0;
  for (std::int64_t b = 0; b < trained; ++b) trained_sum += row.last(b);
  for (std::int64_t b = 0; b <= block; ++b) sum += row.interpolated(b);
  row.set_stretch(trained_sum, sum);
  return row;
}

// Which blocks a stream keeps. `clamp` gives one weight to all that lie M or more blocks back, `running_mean` to all
// once the open block is beyond the trained ones: these are kept as their sum.
struct KeptBlocks {
  static constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

  BeyondTrained beyond = BeyondTrained::error;
  std::int64_t trained = 0;
  std::int64_t slots = kAny;  // summaries of blocks that are kept: block b in slot b % slots
  bool folds = false;         // older blocks are known by their sum

  constexpr KeptBlocks() = default;
  // For a stream of at most `most` blocks.
  constexpr KeptBlocks(BeyondTrained beyond, std::int64_t trained, std::int64_t most = kAny)
      : beyond(beyond), trained(trained), slots(most) {
    if (beyond != BeyondTrained::clamp && beyond != BeyondTrained::running_mean) return;
    folds = most > trained;
    if (folds) slots = trained;
    if (slots < 1) slots = 1;
  }

  // Blocks [first, block) are mixed one by one while `block` is open; with is_folded() also the sum of those before.
  constexpr std::int64_t first(std::int64_t block) const {
    std::int64_t first = 0;
    if (block >= trained && beyond == BeyondTrained::running_mean) first = block;
    if (block >= trained && beyond == BeyondTrained::clamp) first = block - trained + 1;
    return first > block - slots ? first : block - slots;
  }
  constexpr bool is_folded(std::int64_t block) const { return folds && block >= trained; }

  // The block that joins the folded sum when `block` is complete; negative: none.
  constexpr std::int64_t leaving(std::int64_t block) const {
    if (!folds) return -1;
    return beyond == BeyondTrained::clamp ? block + 1 - trained : block;
  }

  // What comes before block `block` in a call that begins with it: the folded blocks as one, if any, then [first,
  // block).
  constexpr std::int64_t history(std::int64_t block) const { return (first(block) > 0 ? 1 : 0) + block - first(block); }
};

// The matrices of a call of `own` blocks from `block` on, [heads, n, n] with n = history(block) + own. Rows of the
// history are zero: no query is in them. `mixing` is [heads, trained, trained].
template <typename T>
std::vector<T> mixing_from(const KeptBlocks& kept, std::span<const T> mixing, std::int64_t heads, std::int64_t block,
                           std::int64_t own) {
  require_size("block", block, 0, kMostTokens);
  require_size("own", own, 0, kMostBlocks);
  const std::int64_t history = kept.history(block), first = kept.first(block), n = history + own;
  std::vector<T> result(static_cast<std::size_t>(checked_elements("heads x blocks x blocks", {heads, n, n})));
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t i = block; i < block + own; ++i) {
      const auto row = mixing_row(mixing.data() + h * kept.trained * kept.trained, kept.trained, i, kept.beyond);
      T* to = result.data() + (h * n + history + i - block) * n;
      if (first > 0) *to++ = row[0];
      for (std::int64_t b = first; b <= i; ++b) *to++ = row[b];
    }
  return result;
}

}  // namespace mhla
