// Position embeddings and mixing matrices for other grids.
#include "models/base/fit.hpp"

#include <cmath>

#include "mhla/torch.hpp"

namespace mhla::models {
namespace {

// The side of a square of this many tokens, 0 where there is none.
std::int64_t square_side(std::int64_t count) {
  const auto side = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(count))));
  return side * side == count ? side : 0;
}

// Stored tokens in front of the grid: 0 or 1, or -1 where the number of tokens fits no grid.
std::int64_t class_tokens(std::int64_t tokens, const std::optional<nn::Grid>& from) {
  for (const std::int64_t prefix : {0, 1})
    if (from ? tokens - prefix == from->tokens() : square_side(tokens - prefix) > 0) return prefix;
  return -1;
}

}  // namespace

at::Tensor fitted_positions(const at::Tensor& stored, const std::optional<nn::Grid>& from, nn::Grid to,
                            bool class_token) {
  if (stored.dim() != 3 || stored.size(0) != 1 || stored.numel() == 0) return {};
  const std::int64_t prefix = class_tokens(stored.size(1), from);
  if (prefix < 0) return {};
  const std::int64_t side = square_side(stored.size(1) - prefix);
  at::Tensor grid = nn::resize_tokens(stored.slice(1, prefix), from.value_or(nn::Grid{side, side}), to);
  if (!class_token) return grid;
  return at::cat({prefix == 1 ? stored.slice(1, 0, 1) : at::zeros_like(stored.slice(1, 0, 1)), grid}, 1);
}

at::Tensor fitted_mixing(const at::Tensor& stored, const std::optional<Partition>& from, const Partition& to) {
  if (stored.dim() != 4 || stored.size(0) != stored.size(1) || stored.size(2) != 1 || stored.size(3) != 1) return {};
  const std::int64_t blocks = stored.size(0), side = square_side(blocks);
  if (from ? from->blocks() != blocks : side == 0) return {};
  const Partition source = from ? *from : Partition::grid({side, side}, {side, side});
  return resize_mixing(stored.flatten(1), source, to).view({to.blocks(), to.blocks(), 1, 1});
}

}  // namespace mhla::models
