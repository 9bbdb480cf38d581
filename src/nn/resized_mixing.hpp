// Mixing matrices for other block layouts, with gradient.
#pragma once

#include <torch/torch.h>

#include "mhla/partition.hpp"

namespace mhla::nn {

// Where the blocks of `to` lie among those of `from`, [blocks of to, blocks of from] in double: weights of a
// multilinear interpolation. Both have the same number of axes.
at::Tensor block_positions(const Partition& from, const Partition& to);

// As resize_mixing, with gradient: P M P^T for the positions P, its rows scaled to the sums of P M where there is such
// a scale. mixing: [M, M].
at::Tensor resized_mixing(const at::Tensor& mixing, const at::Tensor& positions);

}  // namespace mhla::nn
