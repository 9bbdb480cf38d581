// A trained mixing matrix carried to other layouts: interpolation over block positions, and causal matrices beyond the
// blocks they were trained for.
#include <algorithm>
#include <cmath>
#include <string>

#include "core/beyond_trained.hpp"
#include "core/sizes.hpp"
#include "mhla/mixing.hpp"
#include "mhla/types.hpp"

namespace mhla {
namespace {

struct Weighted {
  std::size_t block;
  double weight;
};

// For every block of `to`, the blocks of `from` around its relative position and their multilinear weights.
std::vector<std::vector<Weighted>> neighbours(const Partition& from, const Partition& to) {
  std::vector<std::vector<Weighted>> result(static_cast<std::size_t>(to.blocks()));
  for (std::int64_t block = 0; block < to.blocks(); ++block) {
    std::vector<Weighted> corners{{0, 1.0}};
    const auto centre = to.block_centre(block);
    for (int axis = 0; axis < to.axes(); ++axis) {
      const std::int64_t count = from.blocks_per_axis()[axis];
      const Between at = relative_position(static_cast<std::int64_t>(centre[axis]), to.blocks_per_axis()[axis], count);
      std::vector<Weighted> next;
      for (const Weighted& corner : corners) {
        const std::size_t base = corner.block * static_cast<std::size_t>(count);
        next.push_back({base + static_cast<std::size_t>(at.first), corner.weight * (1 - at.fraction)});
        if (at.fraction > 0) next.push_back({base + static_cast<std::size_t>(at.second), corner.weight * at.fraction});
      }
      corners = std::move(next);
    }
    result[static_cast<std::size_t>(block)] = std::move(corners);
  }
  return result;
}

double sum(std::span<const double> values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

// Scales a row so that it sums to `target`; a row whose sum has the other sign or none has no such scale and stays.
void scale_to_sum(std::span<double> row, double target) {
  const double ratio = target / sum(row);
  if (!(ratio > 0) || !std::isfinite(ratio) || ratio == 1) return;
  for (double& value : row) value *= ratio;
}

void check_square(std::span<const double> mixing, std::int64_t blocks, const char* argument) {
  require_size(argument, blocks, 0, kMostBlocks);
  const auto side = static_cast<std::size_t>(blocks);
  if (mixing.size() != side * side)
    throw Error("mixing has " + std::to_string(mixing.size()) + " entries; " + argument + " is " +
                std::to_string(blocks) + ", which needs that number squared");
}

}  // namespace

std::vector<double> resize_mixing(std::span<const double> mixing, const Partition& from, const Partition& to) {
  check_square(mixing, from.blocks(), "the number of blocks of `from`");
  if (from.axes() != to.axes())
    throw Error("to has " + std::to_string(to.axes()) + " axes; it needs " + std::to_string(from.axes()) +
                ", as from has");
  require_size("the number of blocks of `to`", to.blocks(), 0, kMostBlocks);
  if (to.blocks() == 0) return {};
  if (from.blocks() == 0) throw Error("from has no blocks; it must have at least one");

  const auto old_blocks = static_cast<std::size_t>(from.blocks());
  const auto new_blocks = static_cast<std::size_t>(to.blocks());
  const auto around = neighbours(from, to);
  std::vector<double> result(new_blocks * new_blocks, 0.0);
  std::vector<double> query_row(old_blocks);
  for (std::size_t i = 0; i < new_blocks; ++i) {
    std::ranges::fill(query_row, 0.0);
    for (const Weighted& query : around[i])
      for (std::size_t b = 0; b < old_blocks; ++b) query_row[b] += query.weight * mixing[query.block * old_blocks + b];
    const std::span<double> row(result.data() + i * new_blocks, new_blocks);
    for (std::size_t b = 0; b < new_blocks; ++b)
      for (const Weighted& source : around[b]) row[b] += source.weight * query_row[source.block];
    scale_to_sum(row, sum(query_row));
  }
  return result;
}

std::vector<double> causal_row(std::span<const double> mixing, std::int64_t trained, std::int64_t block,
                               BeyondTrained beyond) {
  check_square(mixing, trained, "trained");
  require_size("block", block, 0, kMostKeptBlocks);
  if (block >= trained && beyond == BeyondTrained::error)
    throw Error("block is " + std::to_string(block) + "; the mixing matrix was trained for " + std::to_string(trained) +
                " blocks and `beyond` is error; it may be clamp, running-mean or interpolate");
  if (trained == 0 && beyond != BeyondTrained::running_mean)
    throw Error("trained is 0; `beyond` " + std::string(name(beyond)) + " needs at least 1");
  const auto entries = mixing_row(mixing.data(), trained, block, beyond);
  std::vector<double> row(static_cast<std::size_t>(block) + 1);
  for (std::int64_t b = 0; b <= block; ++b) row[static_cast<std::size_t>(b)] = entries[b];
  return row;
}

std::vector<double> extend_causal_mixing(std::span<const double> mixing, std::int64_t trained, std::int64_t blocks,
                                         BeyondTrained beyond) {
  check_square(mixing, trained, "trained");
  require_size("blocks", blocks, 0, kMostBlocks);
  const auto side = static_cast<std::size_t>(blocks);
  std::vector<double> result(side * side, 0.0);
  for (std::int64_t i = 0; i < blocks; ++i)
    std::ranges::copy(causal_row(mixing, trained, i, beyond), result.begin() + i * blocks);
  return result;
}

}  // namespace mhla
