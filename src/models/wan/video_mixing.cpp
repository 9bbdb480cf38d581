// Which blocks and which matrix a layer uses on a grid.
#include "models/wan/video_mixing.hpp"

#include <algorithm>

#include "mhla/types.hpp"
#include "nn/resized_mixing.hpp"

namespace mhla::models {

VideoMixingImpl::VideoMixingImpl(const Partition& partition, const at::Tensor& initial, bool frozen)
    : home_(partition), last_(partition) {
  const std::int64_t count = partition.blocks();
  if (initial.sizes() != at::IntArrayRef({count, count}))
    throw Error("mixing has shape " + c10::str(initial.sizes()) + ", but the partition is " + partition.describe());
  const auto conv = register_module("conv", std::make_shared<torch::nn::Module>("conv"));
  weight = conv->register_parameter("weight", initial.view({count, count, 1, 1}).clone(), /*requires_grad=*/!frozen);
}

VideoMixingImpl::Blocks VideoMixingImpl::on(VideoGrid grid) {
  const at::Tensor own = weight.flatten(1);
  const auto sizes = grid.sizes();
  if (std::ranges::equal(sizes, home_.sizes())) return {home_, own};
  std::array<std::int64_t, 3> extents{};
  for (std::size_t axis = 0; axis < extents.size(); ++axis)
    extents[axis] = (sizes[axis] + home_.blocks_per_axis()[axis] - 1) / home_.blocks_per_axis()[axis];
  const Partition here = Partition::by_extent(sizes, extents);
  if (std::ranges::equal(here.blocks_per_axis(), home_.blocks_per_axis())) return {here, own};
  if (!positions_.defined() || positions_.device() != own.device() || last_ != here) {
    positions_ = nn::block_positions(home_, here).to(own.device());
    last_ = here;
  }
  return {here, nn::resized_mixing(own, positions_)};
}

}  // namespace mhla::models
