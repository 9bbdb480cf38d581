// Partition of tokens into blocks: construction with its checks, and the maps between tokens, blocks and slots.
#include "mhla/partition.hpp"

#include <algorithm>

#include "core/sizes.hpp"
#include "mhla/types.hpp"

namespace mhla {
namespace {

using Axes = std::array<std::int64_t, Partition::kMaxAxes>;

std::string times(std::span<const std::int64_t> values) {
  std::string text;
  for (const std::int64_t value : values) {
    if (!text.empty()) text += 'x';
    text += std::to_string(value);
  }
  return text;
}

std::string entry(const char* argument, std::size_t axis, std::int64_t value) {
  return std::string(argument) + "[" + std::to_string(axis) + "] is " + std::to_string(value);
}

std::int64_t product(std::span<const std::int64_t> values, const char* argument) {
  std::int64_t result = 1;
  bool zero = false;
  bool overflow = false;
  for (const std::int64_t value : values) {
    zero = zero || value == 0;
    overflow = __builtin_mul_overflow(result, value, &result) || overflow;
  }
  if (zero) return 0;
  if (overflow) throw Error(std::string(argument) + " are " + times(values) + ", whose product does not fit 64 bits");
  return result;
}

void check_axes(std::span<const std::int64_t> sizes, std::span<const std::int64_t> others, const char* argument) {
  if (sizes.empty() || sizes.size() > Partition::kMaxAxes)
    throw Error("sizes has " + std::to_string(sizes.size()) + " axes; it may have 1, 2 or 3");
  if (others.size() != sizes.size())
    throw Error(std::string(argument) + " has " + std::to_string(others.size()) + " axes; it needs " +
                std::to_string(sizes.size()) + ", as sizes has");
  for (std::size_t axis = 0; axis < sizes.size(); ++axis)
    if (sizes[axis] < 0) throw Error(entry("sizes", axis, sizes[axis]) + "; it may not be negative");
}

// Extent of `count` blocks on an axis of `size` tokens. Rounding the extent up can leave the last blocks empty; then
// the nearest counts that do not are those of this extent and of the next smaller one.
std::int64_t extent_for(std::int64_t size, std::int64_t count, std::size_t axis) {
  if (count <= 0) throw Error(entry("blocks", axis, count) + "; it must be at least 1");
  if (size == 0) return 1;
  if (count > size)
    throw Error(entry("blocks", axis, count) + ", more than the " + std::to_string(size) + " tokens of the axis");
  const std::int64_t extent = divide_up(size, count);
  const std::int64_t below = divide_up(size, extent);
  if (below != count)
    throw Error(entry("blocks", axis, count) + ", which leaves an empty block: " + std::to_string(size) +
                " tokens in blocks of " + std::to_string(extent) + " make " + std::to_string(below) +
                "; the nearest valid counts are " + std::to_string(below) + " and " +
                std::to_string(divide_up(size, extent - 1)));
  return extent;
}

std::int64_t check_index(std::int64_t index, std::int64_t count, const char* argument) {
  if (index < 0 || index >= count)
    throw Error(std::string(argument) + " is " + std::to_string(index) + "; it may be 0 to " +
                std::to_string(count - 1) + " (there are " + std::to_string(count) + ")");
  return index;
}

// Coordinates of a raster index, last axis fastest.
Axes coordinates(std::int64_t index, const Axes& sizes, int axes) {
  Axes result{};
  for (int axis = axes - 1; axis >= 0; --axis) {
    result[axis] = index % sizes[axis];
    index /= sizes[axis];
  }
  return result;
}

}  // namespace

Partition Partition::line(std::int64_t tokens, std::int64_t block_size) {
  if (tokens < 0) throw Error("tokens is " + std::to_string(tokens) + "; it may not be negative");
  if (block_size <= 0) throw Error("block_size is " + std::to_string(block_size) + "; it must be at least 1");
  return by_extent({tokens}, {block_size});
}

Partition Partition::grid(std::span<const std::int64_t> sizes, std::span<const std::int64_t> blocks) {
  check_axes(sizes, blocks, "blocks");
  Axes extents{1, 1, 1};
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) extents[axis] = extent_for(sizes[axis], blocks[axis], axis);
  return by_extent(sizes, std::span(extents).first(sizes.size()));
}

Partition Partition::grid(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> blocks) {
  return grid(std::span(sizes.begin(), sizes.size()), std::span(blocks.begin(), blocks.size()));
}

Partition Partition::by_extent(std::span<const std::int64_t> sizes, std::span<const std::int64_t> extents) {
  check_axes(sizes, extents, "extents");
  Partition partition;
  partition.axes_ = static_cast<int>(sizes.size());
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (extents[axis] <= 0) throw Error(entry("extents", axis, extents[axis]) + "; it must be at least 1");
    partition.sizes_[axis] = sizes[axis];
    partition.extents_[axis] = extents[axis];
    partition.counts_[axis] = divide_up(sizes[axis], extents[axis]);
  }
  partition.tokens_ = product(sizes, "sizes");
  partition.capacity_ = product(extents, "extents");
  partition.blocks_ = partition.tokens_ == 0 ? 0 : product(partition.blocks_per_axis(), "blocks");
  return partition;
}

Partition Partition::by_extent(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> extents) {
  return by_extent(std::span(sizes.begin(), sizes.size()), std::span(extents.begin(), extents.size()));
}

Partition::Box Partition::box(std::int64_t block) const {
  const Axes place = coordinates(check_index(block, blocks_, "block"), counts_, axes_);
  Box result{{0, 0, 0}, {1, 1, 1}};
  for (int axis = 0; axis < axes_; ++axis) {
    result.begin[axis] = place[axis] * extents_[axis];
    result.end[axis] = result.begin[axis] + std::min(extents_[axis], sizes_[axis] - result.begin[axis]);
  }
  return result;
}

std::int64_t Partition::block_tokens(std::int64_t block) const {
  const Box b = box(block);
  std::int64_t tokens = 1;
  for (int axis = 0; axis < axes_; ++axis) tokens *= b.end[axis] - b.begin[axis];
  return tokens;
}

Partition::BlockRuns Partition::runs(std::int64_t block) const {
  const Box b = box(block);
  const int last = axes_ - 1;
  BlockRuns runs;
  runs.count_ = b.end[last] - b.begin[last];
  for (int axis = 0; axis < axes_; ++axis) runs.token_ = runs.token_ * sizes_[axis] + b.begin[axis];
  if (axes_ >= 2) {
    runs.rows_ = b.end[last - 1] - b.begin[last - 1];
    runs.row_tokens_ = sizes_[last];
    runs.row_slots_ = extents_[last];
  }
  if (axes_ == 3) {
    runs.planes_ = b.end[0] - b.begin[0];
    runs.plane_tokens_ = sizes_[1] * sizes_[2];
    runs.plane_slots_ = extents_[1] * extents_[2];
  }
  return runs;
}

std::int64_t Partition::block_of(std::int64_t token) const {
  const Axes place = coordinates(check_index(token, tokens_, "token"), sizes_, axes_);
  std::int64_t block = 0;
  for (int axis = 0; axis < axes_; ++axis) block = block * counts_[axis] + place[axis] / extents_[axis];
  return block;
}

std::int64_t Partition::slot_of(std::int64_t token) const {
  const Axes place = coordinates(check_index(token, tokens_, "token"), sizes_, axes_);
  std::int64_t slot = 0;
  for (int axis = 0; axis < axes_; ++axis) slot = slot * extents_[axis] + place[axis] % extents_[axis];
  return slot;
}

std::vector<std::int64_t> Partition::block_order() const {
  std::vector<std::int64_t> order;
  order.reserve(static_cast<std::size_t>(checked_elements("tokens", {tokens_})));
  for (std::int64_t block = 0; block < blocks_; ++block) {
    const BlockRuns runs = this->runs(block);
    for (std::int64_t r = 0; r < runs.size(); ++r)
      for (std::int64_t i = 0; i < runs[r].count; ++i) order.push_back(runs[r].token + i);
  }
  return order;
}

std::vector<std::int64_t> Partition::block_offsets() const {
  std::vector<std::int64_t> offsets(static_cast<std::size_t>(checked_elements("blocks", {blocks_})) + 1, 0);
  for (std::int64_t block = 0; block < blocks_; ++block)
    offsets[static_cast<std::size_t>(block) + 1] = offsets[static_cast<std::size_t>(block)] + block_tokens(block);
  return offsets;
}

std::array<double, Partition::kMaxAxes> Partition::block_centre(std::int64_t block) const {
  const Axes place = coordinates(check_index(block, blocks_, "block"), counts_, axes_);
  std::array<double, kMaxAxes> centre{};
  for (int axis = 0; axis < axes_; ++axis) centre[axis] = static_cast<double>(place[axis]) + 0.5;
  return centre;
}

std::string Partition::describe() const {
  return (axes_ == 1 ? "line " : "grid ") + times(sizes()) + ", blocks of " + times(extents()) +
         ", M = " + std::to_string(blocks_);
}

}  // namespace mhla
