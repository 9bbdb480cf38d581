// The held-out denoising error depends on pictures and seed, not on how they are batched.
#include "tasks/generate/denoising_error.hpp"

#include <gtest/gtest.h>

#include "diffusion/noise.hpp"
#include "models/generators.hpp"

namespace mhla::tasks {
namespace {

std::shared_ptr<models::Generator> untrained_generator() {
  torch::manual_seed(1);
  models::GeneratorOptions options;
  options.size = {8, 8};
  options.channels = 3;
  options.classes = 4;
  options.width = 32;
  options.depth = 2;
  options.heads = 2;
  options.blocks = {2, 2};
  auto model = models::make_generator(options);
  model->eval();
  return model;
}

struct Pictures {
  at::Tensor x_0 = torch::rand({24, 3, 8, 8}) * 2 - 1;
  at::Tensor labels = torch::arange(24) % 4;
};

TEST(DenoisingError, OfAGeneratorThatPredictsNoNoiseIsTheNoisesMeanSquare) {
  const auto model = untrained_generator();  // its last layer starts at zero
  const Pictures pictures;
  const auto error = denoising_error(*model, *diffusion::make_process("linear"), pictures.x_0, pictures.labels, 7, 100);
  const at::Tensor squares =
      diffusion::PictureNoise(7, 100, 24).draw({3, 8, 8}).to(at::kDouble).square().flatten(1).mean(1);
  std::vector<double> early;
  for (std::int64_t i = 0; i < 24; ++i)
    if (denoising_step(7, 100 + i, 1000) < 300) early.push_back(squares[i].item<double>());
  EXPECT_EQ(error.pictures, 24);
  EXPECT_NEAR(error.all, squares.mean().item<double>(), 1e-6);
  ASSERT_EQ(error.early_pictures, std::ssize(early));
  EXPECT_NEAR(error.early, torch::tensor(early, at::kDouble).mean().item<double>(), 1e-6);
}

TEST(DenoisingError, DoesNotDependOnTheBatches) {
  const auto model = untrained_generator();
  {
    const torch::NoGradGuard no_gradient;
    for (auto& item : model->named_parameters())
      if (item.key() != "pos_embed" && !item.key().ends_with("conv.weight"))
        item.value().add_(torch::randn_like(item.value()) * 0.1);
  }
  const auto process = diffusion::make_process("cosine", 50);
  const Pictures pictures;
  const auto whole = denoising_error(*model, *process, pictures.x_0, pictures.labels, 3, 0);
  DenoisingError parts;
  for (const auto& [begin, end] : {std::pair(0, 1), std::pair(1, 9), std::pair(9, 9), std::pair(9, 24)})
    parts += denoising_error(*model, *process, pictures.x_0.slice(0, begin, end), pictures.labels.slice(0, begin, end),
                             3, begin);
  EXPECT_EQ(parts.pictures, whole.pictures);
  EXPECT_EQ(parts.early_pictures, whole.early_pictures);
  EXPECT_NEAR(parts.all, whole.all, 1e-5 * whole.all);
  EXPECT_NEAR(parts.early, whole.early, 1e-5 * whole.early);
  EXPECT_NE(denoising_error(*model, *process, pictures.x_0, pictures.labels, 4, 0).all, whole.all);
  EXPECT_NE(denoising_error(*model, *process, pictures.x_0, (pictures.labels + 1) % 4, 3, 0).all, whole.all);
}

TEST(DenoisingError, StepsOfConsecutivePicturesAreSpreadEvenly) {
  for (const std::int64_t first : {0, 1234567}) {
    std::vector<int> tenths(10);
    for (std::int64_t i = 0; i < 1000; ++i) {
      const std::int64_t step = denoising_step(5, first + i, 1000);
      ASSERT_GE(step, 0);
      ASSERT_LT(step, 1000);
      ++tenths[static_cast<std::size_t>(step / 100)];
    }
    for (const int count : tenths) EXPECT_NEAR(count, 100, 3);
  }
}

}  // namespace
}  // namespace mhla::tasks
