// Sampling of videos: guidance in one batch or two passes, frames as they are decoded.
#include <gtest/gtest.h>

#include "support/relative_error.hpp"
#include "tasks/video/sampling.hpp"

namespace mhla::tasks {
namespace {

struct SmallVideoModels {
  SmallVideoModels() : transformer(options()), autoencoder(sizes()) {
    const torch::NoGradGuard no_gradient;
    for (auto& parameter : transformer.parameters()) parameter.add_(torch::randn_like(parameter) * 0.1);
    transformer.eval(), autoencoder.eval();
  }

  static models::WanOptions options() {
    torch::manual_seed(5);
    models::WanOptions options;
    options.attention = {"mhla"};
    options.size = {2, 4, 4};
    options.blocks = {2, 2, 2};
    options.channels = options.out_channels = 3;
    options.text_width = 6;
    options.text_tokens = 4;
    options.width = 16;
    options.depth = options.heads = 2;
    options.mlp_width = 24;
    options.frequencies = 8;
    return options;
  }
  static models::WanVaeOptions sizes() {
    models::WanVaeOptions sizes;
    sizes.width = 4;
    sizes.latent_channels = 3;
    sizes.multipliers = {1, 2};
    sizes.residuals = 1;
    sizes.halves_time = {true};
    sizes.mean = {0.0, 0.1, 0.2};
    sizes.deviation = {1.0, 2.0, 0.5};
    return sizes;
  }

  models::Wan transformer;
  models::WanVae autoencoder;
  at::Tensor noise = torch::randn({1, 3, 2, 4, 4}), prompt = torch::randn({3, 6}), negative = torch::randn({1, 6});
};

TEST(VideoSampling, ThePairInOneBatchIsThatOfTwoPasses) {
  SmallVideoModels models;
  for (const auto method : {diffusion::Method::first_order, diffusion::Method::dpmpp_2m, diffusion::Method::unipc}) {
    VideoSampling sampling{.method = method, .steps = 4};
    std::vector<std::int64_t> steps;
    const at::Tensor together = sampled_video(models.transformer, models.noise, models.prompt, models.negative,
                                              sampling, [&](std::int64_t done, const at::Tensor& latents) {
                                                steps.push_back(done);
                                                EXPECT_EQ(latents.sizes(), models.noise.sizes());
                                              });
    EXPECT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4}));
    const auto again = [&] {
      return sampled_video(models.transformer, models.noise, models.prompt, models.negative, sampling);
    };
    EXPECT_TRUE(torch::equal(again(), together));
    sampling.pair_in_one_batch = false;
    EXPECT_LT(testing::relative_error(again(), together), 1e-4);
  }
}

TEST(VideoSampling, WithoutGuidanceTheNegativePromptDoesNotCount) {
  SmallVideoModels models;
  VideoSampling sampling{.steps = 3, .guidance = {.scale = 1.0}};
  const auto sampled = [&](const at::Tensor& negative) {
    return sampled_video(models.transformer, models.noise, models.prompt, negative, sampling);
  };
  EXPECT_TRUE(torch::equal(sampled(models.negative), sampled(models.negative + 1.0)));
  sampling.guidance.scale = 3.0;
  EXPECT_GT(testing::relative_error(sampled(models.negative + 1.0), sampled(models.negative)), 1e-4);
}

TEST(VideoSampling, FramesComeInOrderAsTheyAreDecoded) {
  SmallVideoModels models;
  const at::Tensor latents = torch::randn({1, 3, 3, 4, 6});
  std::vector<at::Tensor> frames;
  decode_video(models.autoencoder, latents, 0, [&](const at::Tensor& part) { frames.push_back(part); });
  ASSERT_EQ(frames.size(), 3);
  EXPECT_EQ(frames[0].sizes(), (std::vector<std::int64_t>{1, 1, 3, 8, 12}));
  EXPECT_EQ(frames[2].sizes(), (std::vector<std::int64_t>{1, 2, 3, 8, 12}));
  const at::Tensor whole = at::cat(frames, 1);
  EXPECT_GE(whole.min().item<float>(), 0.0F);
  EXPECT_LE(whole.max().item<float>(), 1.0F);
  const torch::NoGradGuard no_gradient;
  const at::Tensor decoded = models.autoencoder.decode(models.autoencoder.unscaled(latents));
  EXPECT_TRUE(torch::equal(whole, ((decoded.clamp(-1.0, 1.0) + 1.0) / 2.0).transpose(1, 2)));
}

}  // namespace
}  // namespace mhla::tasks
