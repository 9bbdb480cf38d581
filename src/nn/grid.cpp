// Index maps and resampling of token grids.
#include "nn/grid.hpp"

#include <array>

namespace mhla::nn {

Partition at_most(Grid grid, std::span<const std::int64_t> blocks) {
  const std::array sizes = {grid.height, grid.width};
  return Partition::by_extent(
      sizes, std::array{(grid.height + blocks[0] - 1) / blocks[0], (grid.width + blocks[1] - 1) / blocks[1]});
}

at::Tensor block_of_tokens(const Partition& partition) {
  at::Tensor blocks = at::empty({partition.tokens()}, at::kLong);
  auto* const values = blocks.mutable_data_ptr<std::int64_t>();
  for (std::int64_t token = 0; token < partition.tokens(); ++token) values[token] = partition.block_of(token);
  return blocks;
}

at::Tensor resize_tokens(const at::Tensor& tokens, Grid from, Grid to) {
  if (from == to) return tokens;
  const at::Tensor image = as_image(tokens.to(at::kFloat), from).contiguous();
  return as_tokens(at::_upsample_bicubic2d_aa(image, {to.height, to.width}, /*align_corners=*/false))
      .contiguous()
      .to(tokens.scalar_type());
}

}  // namespace mhla::nn
