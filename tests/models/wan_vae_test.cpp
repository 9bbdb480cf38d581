// The video autoencoder: streams, pieces, tiles, causality, files.
#include "models/wan_vae/wan_vae.hpp"

#include <gtest/gtest.h>

#include "models/base/weights.hpp"
#include "models/small_model.hpp"
#include "models/wan_vae/tiles.hpp"
#include "models/wan_vae/wan_vae_file.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

using mhla::testing::TemporaryFolder;
using testing::relative_error;

constexpr double kLastBits = 1e-5;

WanVaeOptions small_wan_vae_options() {
  WanVaeOptions options;
  options.width = 4;
  options.latent_channels = 3;
  options.multipliers = {1, 2, 2};
  options.residuals = 1;
  options.halves_time = {true, true};
  options.mean = {0.1, -0.2, 0.3};
  options.deviation = {1.1, 0.9, 1.3};
  return options;
}

std::shared_ptr<WanVae> small_wan_vae() {
  torch::manual_seed(4);
  auto model = std::make_shared<WanVae>(small_wan_vae_options());
  testing::shake(*model);
  model->eval();
  return model;
}

TEST(WanVae, HasWansSizesAndLayers) {
  const WanVae model;
  EXPECT_EQ(model.options.pixels(), 8);
  EXPECT_EQ(model.options.frames(), 4);
  const NamedTensors tensors = named_tensors(model);
  const auto shape = [&](const char* name) { return tensors.at(name).sizes().vec(); };
  EXPECT_EQ(shape("encoder.downsamples.3.shortcut.weight"), (std::vector<std::int64_t>{192, 96, 1, 1, 1}));
  EXPECT_EQ(shape("encoder.downsamples.8.time_conv.weight"), (std::vector<std::int64_t>{384, 384, 3, 1, 1}));
  EXPECT_EQ(shape("encoder.head.2.weight"), (std::vector<std::int64_t>{32, 384, 3, 3, 3}));
  EXPECT_EQ(shape("decoder.upsamples.7.time_conv.weight"), (std::vector<std::int64_t>{768, 384, 3, 1, 1}));
  EXPECT_EQ(shape("decoder.upsamples.11.resample.1.weight"), (std::vector<std::int64_t>{96, 192, 3, 3}));
  EXPECT_EQ(shape("decoder.head.2.weight"), (std::vector<std::int64_t>{3, 96, 3, 3, 3}));
  const auto count = static_cast<double>(testing::parameter_count(model));
  EXPECT_EQ(count, 126'892'531);
  EXPECT_LE(least_elements(model.options), count);
  EXPECT_GE(least_elements(model.options), 0.7 * count);
}

TEST(WanVae, AStreamGivesTheBitsOfTheWhole) {
  const torch::NoGradGuard no_gradient;
  const auto model = small_wan_vae();
  const at::Tensor latents = torch::randn({1, 3, 3, 3, 4}), video = torch::rand({1, 3, 9, 8, 12}) * 2.0 - 1.0;
  const at::Tensor decoded = model->decode(latents), encoded = model->encode(video);
  ASSERT_EQ(decoded.sizes(), (std::vector<std::int64_t>{1, 3, 9, 12, 16}));
  ASSERT_EQ(encoded.sizes(), (std::vector<std::int64_t>{1, 3, 3, 2, 3}));
  WanVaeStream decoding, encoding;
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t begin = i == 0 ? 0 : 4 * i - 3, end = 4 * i + 1;
    EXPECT_TRUE(torch::equal(model->decode_next(latents.slice(2, i, i + 1), decoding), decoded.slice(2, begin, end)));
    EXPECT_TRUE(torch::equal(model->encode_next(video.slice(2, begin, end), encoding), encoded.slice(2, i, i + 1)));
  }
}

TEST(WanVae, PiecesOfAnyLengthDifferInTheLastBits) {
  const torch::NoGradGuard no_gradient;
  const auto model = small_wan_vae();
  const at::Tensor latents = torch::randn({1, 3, 5, 3, 2}), video = torch::rand({1, 3, 17, 8, 8});
  const at::Tensor decoded = model->decode(latents), encoded = model->encode(video);
  for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>{5}, {2, 1, 2}}) {
    WanVaeStream decoding, encoding;
    std::vector<at::Tensor> frames, codes;
    std::int64_t begin = 0;
    for (const std::int64_t count : pieces) {
      frames.push_back(model->decode_next(latents.slice(2, begin, begin + count), decoding));
      codes.push_back(
          model->encode_next(video.slice(2, begin == 0 ? 0 : 4 * begin - 3, 4 * (begin + count) - 3), encoding));
      begin += count;
    }
    EXPECT_LT(relative_error(at::cat(frames, 2), decoded), kLastBits);
    EXPECT_LT(relative_error(at::cat(codes, 2), encoded), kLastBits);
  }
}

TEST(WanVae, TilesDifferInTheLastBits) {
  const torch::NoGradGuard no_gradient;
  const auto model = small_wan_vae();
  const at::Tensor latents = torch::randn({1, 3, 2, 24, 3}), video = torch::rand({1, 3, 5, 12, 96});
  const at::Tensor decoded = model->decode(latents), encoded = model->encode(video);
  for (const std::int64_t tile : {5, 12}) {
    EXPECT_LT(relative_error(model->decode(latents, tile), decoded), kLastBits) << tile;
    EXPECT_LT(relative_error(model->encode(video, tile), encoded), kLastBits) << tile;
  }
  const auto tiles = wan_vae::tiles_of(30, 11, 8, 5);  // and they do not see whole frames
  EXPECT_EQ(tiles.size(), 8);
  EXPECT_EQ(tiles[2].rows.seen_end - tiles[2].rows.seen_begin, 18);
}

TEST(WanVae, NoFrameDependsOnALaterOne) {
  const torch::NoGradGuard no_gradient;
  const auto model = small_wan_vae();
  const at::Tensor latents = torch::randn({1, 3, 3, 4, 4});
  const at::Tensor changed = latents.clone();
  changed.slice(2, 2).add_(1.0);
  const at::Tensor before = model->decode(latents), after = model->decode(changed);
  EXPECT_TRUE(torch::equal(after.slice(2, 0, 5), before.slice(2, 0, 5)));
  EXPECT_GT(relative_error(after.slice(2, 5), before.slice(2, 5)), 1e-3);
}

TEST(WanVae, ScalingIsUndone) {
  const auto model = small_wan_vae();
  const at::Tensor latents = torch::randn({1, 3, 2, 4, 4});
  EXPECT_LT(relative_error(model->unscaled(model->scaled(latents)), latents), 1e-6);
  EXPECT_NEAR(model->scaled(latents)[0][1][0][0][0].item<double>(), (latents[0][1][0][0][0].item<double>() + 0.2) / 0.9,
              1e-6);
}

TEST(WanVae, VideosThatDoNotFitAreNamed) {
  const auto model = small_wan_vae();
  expect_error([&] { model->encode(torch::zeros({1, 3, 4, 8, 8})); }, {"4 frames", "one more than a multiple of 4"});
  expect_error([&] { model->encode(torch::zeros({1, 3, 5, 8, 10})); }, {"[1, 3, 5, 8, 10]", "multiples of 4"});
  expect_error([&] { model->decode(torch::zeros({1, 4, 5, 8, 8})); }, {"[1, 4, 5, 8, 8]", "[batch, 3,"});
  expect_error([&] { model->decode(torch::zeros({1, 3, 0, 8, 8})); }, {"[1, 3, 0, 8, 8]"});
  expect_error([&] { model->decode(torch::zeros({1, 3, 1, 8, 8}), -1); }, {"tile is -1"});
  WanVaeStream stream;
  model->encode_next(torch::zeros({1, 3, 5, 8, 8}), stream);
  expect_error([&] { model->encode_next(torch::zeros({1, 3, 5, 8, 8}), stream); }, {"5 frames", "a multiple of 4"});
}

TEST(WanVae, WrongOptionsAreNamed) {
  const auto refused = [](const auto& change, std::initializer_list<std::string_view> mentions) {
    WanVaeOptions options = small_wan_vae_options();
    change(options);
    expect_error([&] { WanVae model(options); }, mentions);
  };
  refused([](WanVaeOptions& o) { o.width = 0; }, {"base_dim is 0"});
  refused([](WanVaeOptions& o) { o.halves_time = {true}; }, {"temperal_downsample has 1", "it must have 2"});
  refused([](WanVaeOptions& o) { o.mean = {1.0}; }, {"latents_mean has 1"});
  refused([](WanVaeOptions& o) { o.deviation = {1.0, 0.0, 1.0}; }, {"latents_std has 0"});
  expect_error([] { io::Json{{"temperal_downsample", 1}}.get<WanVaeOptions>(); }, {"temperal_downsample"});
}

TEST(WanVae, AFolderOrItsFileGivesTheStoredAutoencoder) {
  const TemporaryFolder folder;
  const auto stored = small_wan_vae();
  save_weights(*stored, folder / "vae/diffusion_pytorch_model.safetensors");
  io::write_json((folder / "vae/config.json").string(), stored->options);
  const at::Tensor latents = torch::randn({1, 3, 2, 4, 4});
  const torch::NoGradGuard no_gradient;
  for (const char* path : {"vae", "vae/diffusion_pytorch_model.safetensors"})
    EXPECT_TRUE(torch::equal(load_wan_vae(folder / path)->decode(latents), stored->decode(latents))) << path;
  std::filesystem::remove(folder / "vae/config.json");  // then it would be the large one
  expect_error([&] { load_wan_vae(folder / "vae"); }, {"diffusion_pytorch_model.safetensors: it does not hold"});
  expect_error([&] { load_wan_vae(folder / "none"); }, {"none: there is no such file"});
}

}  // namespace
}  // namespace mhla::models
