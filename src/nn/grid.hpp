// Tokens of an image lie on a grid, row by row.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>

#include "mhla/partition.hpp"

namespace mhla::nn {

struct Grid {
  std::int64_t height = 0, width = 0;

  std::int64_t tokens() const { return height * width; }
  bool operator==(const Grid&) const = default;
};

// [B, N, C] tokens and [B, C, height, width] images of the same memory.
inline at::Tensor as_image(const at::Tensor& tokens, Grid grid) {
  return tokens.unflatten(1, {grid.height, grid.width}).permute({0, 3, 1, 2});
}
inline at::Tensor as_tokens(const at::Tensor& image) { return image.permute({0, 2, 3, 1}).flatten(1, 2); }

// The grid cut into this many blocks per axis, or into fewer where so many would leave some empty.
Partition at_most(Grid grid, std::span<const std::int64_t> blocks);

// Block of every token, int64 [N] on the CPU.
at::Tensor block_of_tokens(const Partition& partition);

// An image of tokens, [1, N, C], brought to another grid by bicubic interpolation (antialiased when it shrinks).
at::Tensor resize_tokens(const at::Tensor& tokens, Grid from, Grid to);

}  // namespace mhla::nn
