// Which blocks and which matrix a layer uses on a grid.
#include "nn/block_mixing.hpp"

#include <algorithm>

#include "mhla/torch.hpp"
#include "nn/input_mixing.hpp"
#include "nn/resized_mixing.hpp"

namespace mhla::nn {

BlockMixingImpl::BlockMixingImpl(const Partition& partition, const at::Tensor& initial, bool frozen,
                                 std::int64_t input_heads)
    : home_(partition) {
  const std::int64_t count = partition.blocks();
  if (initial.sizes() != at::IntArrayRef({count, count}))
    throw Error("mixing has shape " + c10::str(initial.sizes()) + ", but the partition is " + partition.describe());
  auto conv = register_module("conv", std::make_shared<torch::nn::Module>("conv"));
  weight = conv->register_parameter("weight", initial.view({count, count, 1, 1}).clone(), /*requires_grad=*/!frozen);
  if (input_heads == 0) return;
  tau = register_parameter("tau", at::zeros({input_heads}));
  const at::NoGradGuard no_gradient;
  weight.clamp_min_(kLeastInputMixing);
}

const at::Tensor& BlockMixingImpl::positions_of(const Partition& here, at::Device device) {
  const auto to = here.blocks_per_axis();
  if (positions_.defined() && positions_.device() == device && positions_for_ == Grid{to[0], to[1]}) return positions_;
  positions_ = block_positions(home_, here).to(device);
  positions_for_ = {to[0], to[1]};
  return positions_;
}

BlockMixingImpl::Blocks BlockMixingImpl::on(Grid grid, at::Device device) {
  if (!weight.defined()) {
    if (!one_.defined() || one_.device() != device) one_ = at::ones({1, 1}, at::TensorOptions(device));
    return {at_most(grid, home_.blocks_per_axis()), one_};
  }
  const at::Tensor own = weight.flatten(1);
  if (grid == Grid{home_.sizes()[0], home_.sizes()[1]}) return {home_, own};
  const Partition here = at_most(grid, home_.blocks_per_axis());
  if (std::ranges::equal(here.blocks_per_axis(), home_.blocks_per_axis())) return {here, own};
  return {here, resized_mixing(own, positions_of(here, own.device()))};
}

BlockMixingImpl::Blocks BlockMixingImpl::on(Grid grid, const at::Tensor& q, const at::Tensor& k) {
  const auto [partition, matrix] = on(grid, q.device());
  return {partition, tau.defined() ? input_mixing(matrix, tau, q, k, partition) : matrix};
}

void project_mixing_(const std::vector<at::Tensor>& matrices, double low) {
  if (matrices.empty()) return;
  const at::NoGradGuard no_gradient;
  at::_foreach_clamp_min_(matrices, low);
  at::_foreach_clamp_max_(matrices, 1.0);
}

}  // namespace mhla::nn
