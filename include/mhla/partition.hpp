// Splits N tokens into M blocks: chunks of a line, tiles of an image or tubes of a video.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mhla {

// A value: the token grid (one to three axes, last axis fastest) and the extent of a block along each axis. Where an
// extent does not divide its axis the last block is smaller (ragged). Blocks are numbered in raster order.
class Partition {
 public:
  static constexpr int kMaxAxes = 3;

  // N tokens in chunks of block_size.
  static Partition line(std::int64_t tokens, std::int64_t block_size);

  // A grid of tokens cut into `blocks` blocks per axis, each of extent ceil(size / blocks).
  static Partition grid(std::span<const std::int64_t> sizes, std::span<const std::int64_t> blocks);
  static Partition grid(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> blocks);

  // The same by block extent instead of block count.
  static Partition by_extent(std::span<const std::int64_t> sizes, std::span<const std::int64_t> extents);
  static Partition by_extent(std::initializer_list<std::int64_t> sizes, std::initializer_list<std::int64_t> extents);

  int axes() const { return axes_; }
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), static_cast<std::size_t>(axes_)}; }
  std::span<const std::int64_t> extents() const { return {extents_.data(), static_cast<std::size_t>(axes_)}; }
  std::span<const std::int64_t> blocks_per_axis() const { return {counts_.data(), static_cast<std::size_t>(axes_)}; }

  std::int64_t tokens() const { return tokens_; }            // N
  std::int64_t blocks() const { return blocks_; }            // M
  std::int64_t block_capacity() const { return capacity_; }  // tokens of a full (interior) block, at least 1
  std::int64_t block_tokens(std::int64_t block) const;       // tokens of this block
  bool is_line() const { return axes_ == 1; }

  // Block of a token, and its place inside the block counted in the raster order of a *full* block, so that equal
  // slots of different blocks lie at equal offsets from the block's corner also where blocks are ragged.
  std::int64_t block_of(std::int64_t token) const;
  std::int64_t slot_of(std::int64_t token) const;

  // The tokens of a block as runs of consecutive tokens, in ascending order.
  struct Run {
    std::int64_t token, slot, count;
  };
  class BlockRuns {
   public:
    std::int64_t size() const { return rows_ * planes_; }
    Run operator[](std::int64_t index) const {
      const std::int64_t plane = planes_ == 1 ? 0 : index / rows_;
      const std::int64_t row = index - plane * rows_;
      return {token_ + plane * plane_tokens_ + row * row_tokens_, plane * plane_slots_ + row * row_slots_, count_};
    }

   private:
    friend class Partition;
    std::int64_t token_ = 0, count_ = 0, rows_ = 1, planes_ = 1;
    std::int64_t row_tokens_ = 0, plane_tokens_ = 0;  // from one run to the next
    std::int64_t row_slots_ = 0, plane_slots_ = 0;
  };
  BlockRuns runs(std::int64_t block) const;

  // Tokens of block 0, then of block 1, ...: order[new position] = token, and where each block starts (M + 1 entries).
  std::vector<std::int64_t> block_order() const;
  std::vector<std::int64_t> block_offsets() const;

  // Coordinates of a block in units of blocks, as the mixing initialisers measure distance.
  std::array<double, kMaxAxes> block_centre(std::int64_t block) const;

  std::string describe() const;  // "grid 16x16, blocks of 4x4, M = 16"

  bool operator==(const Partition&) const = default;

 private:
  struct Box {
    std::array<std::int64_t, kMaxAxes> begin, end;
  };
  Box box(std::int64_t block) const;

  int axes_ = 0;
  std::array<std::int64_t, kMaxAxes> sizes_{1, 1, 1};
  std::array<std::int64_t, kMaxAxes> extents_{1, 1, 1};
  std::array<std::int64_t, kMaxAxes> counts_{1, 1, 1};
  std::int64_t tokens_ = 0;
  std::int64_t blocks_ = 0;
  std::int64_t capacity_ = 1;
};

}  // namespace mhla
