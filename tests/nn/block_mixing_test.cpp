// The mixing matrix on grids with room for fewer blocks than it has.
#include "nn/block_mixing.hpp"

#include <gtest/gtest.h>

#include "mhla/torch.hpp"

namespace mhla::nn {
namespace {

constexpr double kStep = 1e-6;

BlockMixing in_double(const Partition& home) {
  torch::manual_seed(3);
  return BlockMixing(home, torch::rand({home.blocks(), home.blocks()}, at::kDouble), /*frozen=*/false);
}

TEST(BlockMixing, IsResizedWhereBlocksDoNotFit) {
  const Partition home = Partition::grid({8, 12}, {4, 6});
  BlockMixing mixing = in_double(home);
  for (const Grid grid : {Grid{3, 5}, Grid{2, 12}, Grid{1, 1}, Grid{4, 2}}) {
    const auto [partition, matrix] = mixing->on(grid, at::kCPU);
    EXPECT_LT(partition.blocks(), home.blocks());
    EXPECT_TRUE(at::allclose(matrix, resize_mixing(mixing->weight.flatten(1), home, partition), 1e-12, 1e-12));
  }
  const torch::NoGradGuard no_gradient;
  mixing->weight.zero_();  // no row has a sum to be scaled to
  EXPECT_TRUE(at::equal(mixing->on({3, 5}, at::kCPU).mixing, at::zeros({15, 15}, at::kDouble)));
}

TEST(BlockMixing, GradientsOfAResizedMatrixAreThoseOfFiniteDifferences) {
  BlockMixing mixing = in_double(Partition::grid({6, 8}, {3, 4}));
  const Grid grid{2, 3};
  const at::Tensor factors = torch::randn({6, 6}, at::kDouble);
  const auto value = [&] { return (mixing->on(grid, at::kCPU).mixing * factors).sum(); };
  value().backward();
  const torch::NoGradGuard no_gradient;
  const at::Tensor weights = mixing->weight.view({-1}), gradient = mixing->weight.grad().view({-1});
  for (std::int64_t i = 0; i < weights.numel(); ++i) {
    weights[i] += kStep;
    const auto above = value().item<double>();
    weights[i] -= 2.0 * kStep;
    const auto below = value().item<double>();
    weights[i] += kStep;
    EXPECT_NEAR(gradient[i].item<double>(), (above - below) / (2.0 * kStep), 1e-8) << i;
  }
}

TEST(BlockMixing, ARowWithoutASumHasFiniteGradients) {
  BlockMixing mixing(Partition::grid({4, 4}, {4, 4}), at::zeros({16, 16}, at::kDouble), /*frozen=*/false);
  mixing->on({2, 2}, at::kCPU).mixing.sum().backward();
  EXPECT_TRUE(mixing->weight.grad().isfinite().all().item<bool>());
}

}  // namespace
}  // namespace mhla::nn
