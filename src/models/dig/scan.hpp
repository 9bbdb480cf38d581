// The ways in which a sequence runs through a grid: along rows or columns, from either end.
#pragma once

#include <torch/torch.h>

#include <cstdint>

#include "nn/grid.hpp"

namespace mhla::models {

struct Scan {
  bool reversed = false, transposed = false;

  // The grid whose rows, one after the other, are the sequence.
  nn::Grid seen(nn::Grid grid) const { return transposed ? nn::Grid{grid.width, grid.height} : grid; }

  bool operator==(const Scan&) const = default;
};

// Reversed after every step and transposed after every second one: four ways, then the first again.
inline Scan scan_number(std::int64_t step) { return {.reversed = step % 2 == 1, .transposed = step / 2 % 2 == 1}; }

// Tokens [B, N, C] of a grid that lie as `from`, brought to lie as `to`.
inline at::Tensor rescanned(at::Tensor tokens, nn::Grid grid, Scan from, Scan to) {
  if (from.transposed != to.transposed) {
    const nn::Grid seen = from.seen(grid);
    tokens = tokens.unflatten(1, {seen.height, seen.width}).transpose(1, 2).flatten(1, 2);
  }
  return from.reversed == to.reversed ? tokens : tokens.flip(1);  // either order: reversal turns both axes
}

}  // namespace mhla::models
