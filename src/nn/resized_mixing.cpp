// Interpolation between block layouts as matrix products.
#include "nn/resized_mixing.hpp"

#include "core/beyond_trained.hpp"

namespace mhla::nn {
namespace {

// Weights [to, from] of the cells of a line of `from` for those of a line of `to`.
at::Tensor line_weights(std::int64_t from, std::int64_t to) {
  at::Tensor weights = at::zeros({to, from}, at::kDouble);
  auto values = weights.accessor<double, 2>();
  for (std::int64_t i = 0; i < to; ++i) {
    const Between place = relative_position(i, to, from);
    values[i][place.first] += 1.0 - place.fraction;
    values[i][place.second] += place.fraction;
  }
  return weights;
}

}  // namespace

at::Tensor block_positions(const Partition& from, const Partition& to) {
  at::Tensor positions = at::ones({1, 1}, at::kDouble);
  for (std::size_t axis = 0; axis < to.blocks_per_axis().size(); ++axis)
    positions = at::kron(positions, line_weights(from.blocks_per_axis()[axis], to.blocks_per_axis()[axis]));
  return positions;
}

at::Tensor resized_mixing(const at::Tensor& mixing, const at::Tensor& positions) {
  const at::Tensor queries = positions.matmul(mixing.to(at::kDouble));
  const at::Tensor rows = queries.matmul(positions.t());
  const at::Tensor sums = rows.sum(1, true), targets = queries.sum(1, true);
  const at::Tensor scales = targets / sums.masked_fill(sums == 0.0, 1.0);
  return (rows * scales.masked_fill((sums * targets <= 0.0).detach(), 1.0)).to(mixing.scalar_type());
}

}  // namespace mhla::nn
