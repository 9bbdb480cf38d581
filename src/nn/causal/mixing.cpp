// Rows beyond the trained ones as sums of trained entries.
#include "nn/causal/mixing.hpp"

#include <string>
#include <vector>

#include "core/beyond_trained.hpp"

namespace mhla::nn {
namespace {

// Row i >= M, entry b <= i, is (1 - fraction) m[first] + fraction m[second], where indices are into the flat matrix.
struct Entries {
  std::vector<std::int64_t> first, second;
  std::vector<double> fraction;
};

Entries interpolated_entries(std::int64_t trained, std::int64_t blocks) {
  Entries entries;
  for (std::int64_t i = trained; i < blocks; ++i)
    for (std::int64_t b = 0; b < blocks; ++b) {
      const Between place = relative_position(std::min(b, i), i + 1, trained);
      entries.first.push_back(place.first);
      entries.second.push_back(place.second);
      entries.fraction.push_back(b <= i ? place.fraction : 0.0);
    }
  return entries;
}

// [rows, blocks], the last trained row stretched; each keeps its sum.
at::Tensor interpolated_rows(const at::Tensor& last, std::int64_t blocks) {
  const std::int64_t trained = last.size(0);
  const Entries entries = interpolated_entries(trained, blocks);
  const auto indices = [&](const std::vector<std::int64_t>& values) { return torch::tensor(values).to(last.device()); };
  const at::Tensor fraction = torch::tensor(entries.fraction, at::kDouble).to(last.device());
  const at::Tensor wide = last.to(at::kDouble);
  const at::Tensor rows = ((1.0 - fraction) * wide.index_select(0, indices(entries.first)) +
                           fraction * wide.index_select(0, indices(entries.second)))
                              .view({blocks - trained, blocks})
                              .tril(trained);
  const at::Tensor stretch = wide.sum() / rows.sum(1, true);
  return (rows * at::where((stretch > 0.0).logical_and(stretch.isfinite()), stretch, at::ones_like(stretch)))
      .to(last.scalar_type());
}

// The last trained row by distance: what is further back than it reaches weighs as its first entry.
at::Tensor clamped_rows(const at::Tensor& last, std::int64_t blocks) {
  const std::int64_t trained = last.size(0);
  const auto options = at::TensorOptions(at::kLong).device(last.device());
  const at::Tensor row = at::arange(trained, blocks, options).unsqueeze(1), source = at::arange(blocks, options);
  const at::Tensor index = (trained - 1 - (row - source)).clamp(0, trained - 1);
  return last.index_select(0, index.flatten()).view({blocks - trained, blocks}).tril(trained);
}

at::Tensor running_mean_rows(const at::Tensor& last, std::int64_t blocks) {
  const std::int64_t trained = last.size(0);
  const at::Tensor count = at::arange(trained + 1, blocks + 1, last.options().requires_grad(false)).unsqueeze(1);
  return count.reciprocal().expand({-1, blocks}).tril(trained);
}

}  // namespace

void refuse_blocks(std::int64_t blocks, std::int64_t trained) {
  throw Error("the tokens make " + std::to_string(blocks) + " blocks, but the mixing matrix was trained for " +
              std::to_string(trained) + "; beyond may be clamp, running-mean or interpolate");
}

at::Tensor extended_mixing(const at::Tensor& mixing, std::int64_t blocks, BeyondTrained beyond) {
  const std::int64_t trained = mixing.size(0);
  if (blocks <= trained) return mixing;
  if (beyond == BeyondTrained::error) refuse_blocks(blocks, trained);
  const at::Tensor last = mixing.select(0, trained - 1);
  const at::Tensor rows = beyond == BeyondTrained::clamp          ? clamped_rows(last, blocks)
                          : beyond == BeyondTrained::running_mean ? running_mean_rows(last, blocks)
                                                                  : interpolated_rows(last, blocks);
  return at::cat({at::constant_pad_nd(mixing, {0, blocks - trained}), rows});
}

}  // namespace mhla::nn
