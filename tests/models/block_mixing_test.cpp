// The mixing matrix on grids with room for fewer blocks than it has.
#include "nn/block_mixing.hpp"

#include <gtest/gtest.h>

#include "mhla/torch.hpp"
#include "models/small_model.hpp"

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

TEST(BlockMixing, ClassifiersLearnItFromImagesTooSmallForTheirBlocks) {
  models::ClassifierOptions options = models::testing::small_options();
  options.blocks = {8, 8};
  for (const char* model : {"deit_tiny", "vlt_tiny"}) {
    options.model = model;
    if (options.model == "vlt_tiny") options.patch = models::ClassifierOptions{}.patch;
    const auto classifier = models::make_classifier(options);
    models::testing::shake(*classifier);
    classifier->forward(models::testing::images(2, 12, 16)).square().sum().backward();
    for (std::int64_t layer = 0; layer < classifier->layers(); ++layer) {
      const at::Tensor mixing = classifier->mixing_parameter(layer);
      EXPECT_TRUE(!mixing.defined() || mixing.grad().abs().max().item<double>() > 0.0) << model << ", layer " << layer;
    }
  }
}

}  // namespace
}  // namespace mhla::nn
