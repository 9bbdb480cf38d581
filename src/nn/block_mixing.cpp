// Which blocks and which matrix a layer uses on a grid.
#include "nn/block_mixing.hpp"

#include <algorithm>

#include "mhla/torch.hpp"

namespace mhla::nn {

BlockMixingImpl::BlockMixingImpl(const Partition& partition, const at::Tensor& initial, bool frozen)
    : home_(partition) {
  const std::int64_t count = partition.blocks();
  if (initial.sizes() != at::IntArrayRef({count, count}))
    throw Error("mixing has shape " + c10::str(initial.sizes()) + ", but the partition is " + partition.describe());
  auto conv = register_module("conv", std::make_shared<torch::nn::Module>("conv"));
  weight = conv->register_parameter("weight", initial.view({count, count, 1, 1}).clone(), /*requires_grad=*/!frozen);
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
  return {here, resize_mixing(own, home_, here)};
}

}  // namespace mhla::nn
