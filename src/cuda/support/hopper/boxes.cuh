// The tokens of a block as boxes of the token grid, each fetched by one bulk copy. A line is a grid of one row. Boxes
// divide a full block; where a block is cut off by the edge of the grid, the copy fills its missing tokens with zeros,
// and leaves them out when it stores. Several boxes make up a tile of at most 64 rows.
#pragma once

#include "cuda/support/hopper/instructions.cuh"
#include "cuda/support/shape.cuh"

namespace mhla::cuda::hopper {

inline constexpr int kTileRows = 64;  // at most

struct Boxes {
  int sizes[3] = {1, 1, 1};                 // of the grid: planes, rows, columns
  int extents[3] = {1, 1, 1};               // of a full block
  int box[3] = {1, 1, 1};                   // of a box
  int per_block = 1;                        // boxes
  int rows = 1;                             // tokens of a box
  int joined = 1;                           // boxes of a tile
  int tiles = 1;                            // of a block
  int padded_rows = 16;                     // of a tile, a multiple of 16
  Divider by_columns{}, by_rows{};          // blocks along the grid's last two axes
  Divider by_box_columns{}, by_box_rows{};  // boxes along a block's last two axes
  Divider by_width{}, by_height{};          // tokens along a box's last two axes
  Divider by_box{};                         // tokens of a box

  struct Block {
    int f, h, w;  // first token
    int tokens;
  };
  __device__ Block block(int number) const {
    const int line = by_columns.divide(number), plane = by_rows.divide(line);
    const int f = plane * extents[0], h = (line - plane * static_cast<int>(by_rows.divisor)) * extents[1];
    const int w = (number - line * static_cast<int>(by_columns.divisor)) * extents[2];
    return {f, h, w, min(extents[0], sizes[0] - f) * min(extents[1], sizes[1] - h) * min(extents[2], sizes[2] - w)};
  }
  // A box past the last one lies outside of the grid: it is fetched as zeros.
  __device__ BoxPlace place(const Block& block, int number, int column, int batch) const {
    if (number >= per_block) return {column, sizes[2], sizes[1], sizes[0], batch};
    const int line = by_box_columns.divide(number), plane = by_box_rows.divide(line);
    return {column, block.w + (number - line * static_cast<int>(by_box_columns.divisor)) * box[2],
            block.h + (line - plane * static_cast<int>(by_box_rows.divisor)) * box[1], block.f + plane * box[0], batch};
  }
  // Token of row r of a tile, or -1 where there is none.
  __device__ std::int64_t token(const Block& block, int tile, int r) const {
    const int part = by_box.divide(r), inside = r - part * rows;
    const BoxPlace at = place(block, tile * joined + part, 0, 0);
    const int line = by_width.divide(inside), plane = by_height.divide(line);
    const int w = at.w + inside - line * static_cast<int>(by_width.divisor);
    const int h = at.h + line - plane * static_cast<int>(by_height.divisor), f = at.f + plane;
    if (part >= joined || f >= sizes[0] || h >= sizes[1] || w >= sizes[2]) return -1;
    return (static_cast<std::int64_t>(f) * sizes[1] + h) * sizes[2] + w;
  }
};

}  // namespace mhla::cuda::hopper
