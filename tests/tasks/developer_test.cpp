// What a generator draws, as pixels.
#include "tasks/generate/developer.hpp"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <limits>

#include "models/small_generator.hpp"
#include "models/small_sd_vae.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::tasks {
namespace {

models::LoadedGenerator drawing(std::int64_t channels) { return {models::testing::small_generator(channels), {}}; }

TEST(Developer, ValuesBecomeBytesByCuttingOff) {
  const Developer developer(drawing(3), nullptr);
  EXPECT_EQ(developer.factor(), 1);
  // 127.5 x + 128: 0, 0.5, 64.25, 128, 255.5, 319.
  const at::Tensor drawn = torch::tensor({-1.1, -1.0, -0.5, 0.0, 1.0, 1.5}, at::kFloat).view({1, 3, 1, 2});
  EXPECT_TRUE(
      torch::equal(developer.pixels(drawn), torch::tensor({0, 64, 255, 0, 128, 255}, at::kByte).view({1, 1, 2, 3})));
}

TEST(Developer, GreyIsThreeEqualChannels) {
  const Developer developer(drawing(1), nullptr);
  EXPECT_TRUE(torch::equal(developer.pixels(torch::zeros({2, 1, 1, 1})), torch::full({2, 1, 1, 3}, 128, at::kByte)));
}

TEST(Developer, LatentsAreDecodedEachPictureByItself) {
  const mhla::testing::TemporaryFolder folder;
  const auto vae = models::testing::save_small_sd_vae(folder.path());
  models::LoadedGenerator of_latents = drawing(4);
  of_latents.facts.latent_scale = 0.5;
  const Developer developer(of_latents, vae);
  EXPECT_EQ(developer.factor(), 2);
  const at::Tensor latents = torch::randn({3, 4, 8, 8});
  const at::Tensor pixels = developer.pixels(latents);
  EXPECT_EQ(pixels.sizes(), (std::vector<std::int64_t>{3, 16, 16, 3}));
  const torch::NoGradGuard no_gradient;
  const at::Tensor decoded = vae->decode(latents / 0.5).movedim(1, -1);
  EXPECT_LE((decoded * 127.5 + 128.0).clamp(0, 255).sub(pixels).abs().max().item<double>(), 1.001);
  const int threads = at::get_num_threads();
  for (const int count : {1, 2}) {
    at::set_num_threads(count);
    EXPECT_TRUE(torch::equal(developer.pixels(latents), pixels)) << count << " threads";
    EXPECT_TRUE(torch::equal(developer.pixels(latents.narrow(0, 1, 1))[0], pixels[1])) << count << " threads";
  }
  at::set_num_threads(threads);
}

TEST(Developer, WhatIsNoPictureIsRefused) {
  expect_error([] { Developer(drawing(4), nullptr); }, {"the generator gives 4 channels; pictures have 1 or 3"});
  const mhla::testing::TemporaryFolder folder;
  const auto vae = models::testing::save_small_sd_vae(folder.path());
  expect_error([&] { Developer(drawing(3), vae); }, {"latents of 4 channels, the generator draws 3"});
  const Developer developer(drawing(3), nullptr);
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    expect_error([&] { developer.pixels(torch::full({1, 3, 2, 2}, wrong)); }, {"not finite"});
}

}  // namespace
}  // namespace mhla::tasks
