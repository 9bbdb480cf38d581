// Block means and the softmax over them. All of it is small beside the attention: [B, M, H, D] and [B, H, M, M].
#include "nn/input_mixing.hpp"

namespace mhla::nn {
namespace {

// Directions of blocks, [B, H, M, D]. A mean that is the same for all blocks has none: zero.
at::Tensor directions(const at::Tensor& x, const Partition& partition) {
  constexpr double kLeastLength = 1e-6;
  const at::Tensor means = block_means(x, partition).transpose(1, 2);
  const at::Tensor centred = means - means.mean(2, true);
  return centred / (centred.square().sum(-1, true) + kLeastLength * kLeastLength).sqrt();
}

}  // namespace

at::Tensor block_means(const at::Tensor& x, const Partition& partition) {
  const auto sizes = partition.sizes(), extents = partition.extents(), counts = partition.blocks_per_axis();
  at::Tensor grid = x.unflatten(1, {sizes[0], sizes[1]});
  const std::int64_t below = counts[0] * extents[0] - sizes[0], right = counts[1] * extents[1] - sizes[1];
  if (below > 0 || right > 0) grid = at::constant_pad_nd(grid, {0, 0, 0, 0, 0, right, 0, below});
  const at::Tensor sums = grid.unflatten(2, {counts[1], extents[1]})
                              .unflatten(1, {counts[0], extents[0]})
                              .sum({2, 4}, /*keepdim=*/false, at::promote_types(x.scalar_type(), at::kFloat))
                              .flatten(1, 2);
  if (below == 0 && right == 0) return sums / static_cast<double>(extents[0] * extents[1]);
  const auto lengths = [&](std::size_t axis) {  // of the blocks along an axis
    return (sizes[axis] - extents[axis] * at::arange(counts[axis], sums.options())).clamp_max(extents[axis]);
  };
  return sums / at::outer(lengths(0), lengths(1)).view({-1, 1, 1});
}

at::Tensor input_mixing(const at::Tensor& matrix, const at::Tensor& tau, const at::Tensor& q, const at::Tensor& k,
                        const Partition& partition) {
  // Products of directions keep the precision of float.
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      c10::DispatchKeySet({c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA}));
  const at::Tensor cosines = at::matmul(directions(q, partition), directions(k, partition).transpose(2, 3));
  const at::Tensor logits =
      matrix.clamp_min(kLeastInputMixing).log() + tau.to(cosines.scalar_type()).view({-1, 1, 1}) * cosines;
  return at::softmax(logits, -1);
}

}  // namespace mhla::nn
