// The deep-compression autoencoder: sizes, both ways to change them, and which configs are refused. Its values: the
// parity case dcae.
#include "models/dcae/dcae.hpp"

#include <gtest/gtest.h>

#include "models/small_model.hpp"
#include "support/expect_error.hpp"

namespace mhla::models {
namespace {

DcaeOptions small_dcae() {
  DcaeOptions options;
  options.latent_channels = 8;
  options.attention_head_dim = 8;
  options.encoder_block_types = options.decoder_block_types = {"ResBlock", "EfficientViTBlock"};
  options.encoder_block_out_channels = options.decoder_block_out_channels = {8, 16};
  options.encoder_layers_per_block = {0, 1};
  options.decoder_layers_per_block = {1, 1};
  options.encoder_qkv_multiscales = options.decoder_qkv_multiscales = {{}, {3}};
  return options;
}

TEST(Dcae, PicturesComeBackInTheirSize) {
  const torch::NoGradGuard no_gradient;
  const at::Tensor pictures = torch::rand({2, 3, 8, 12});
  for (const bool convolved : {true, false}) {
    DcaeOptions options = small_dcae();
    options.downsample_block_type = convolved ? "Conv" : "pixel_unshuffle";
    options.upsample_block_type = convolved ? "interpolate" : "pixel_shuffle";
    for (const std::int64_t layers : {0, 1}) {
      options.encoder_layers_per_block[0] = options.decoder_layers_per_block[0] = layers;
      Dcae model(options);
      const at::Tensor latents = model.encode(pictures);
      EXPECT_EQ(latents.sizes(), (std::vector<std::int64_t>{2, 8, 4, 6}));
      EXPECT_EQ(model.decode(latents).sizes(), pictures.sizes());
    }
  }
}

TEST(Dcae, SanasHasAFactorOf32) {
  EXPECT_EQ(DcaeOptions().factor(), 32);
  DcaeOptions options =
      io::Json{{"scaling_factor", 0.5}, {"decoder_act_fns", {"silu", "silu"}}, {"_name", 1}}.get<DcaeOptions>();
  EXPECT_EQ(options.scaling_factor, 0.5);
}

TEST(Dcae, NamesWhatItCannotBe) {
  const auto refused = [](auto change, std::initializer_list<std::string_view> words) {
    DcaeOptions options = small_dcae();
    change(options);
    mhla::expect_error([&] { Dcae model(options); }, words);
  };
  refused([](DcaeOptions& options) { options.encoder_block_types[1] = "ViT"; },
          {"encoder_block_types", "ViT", "ResBlock"});
  refused([](DcaeOptions& options) { options.decoder_layers_per_block = {1}; }, {"decoder", "all must have 2"});
  refused([](DcaeOptions& options) { options.attention_head_dim = 5; },
          {"encoder_block_out_channels has 16", "multiple of 5"});
  refused([](DcaeOptions& options) { options.encoder_qkv_multiscales[1] = {4}; }, {"odd sides"});
  refused([](DcaeOptions& options) { options.upsample_block_type = "bicubic"; },
          {"upsample_block_type", "pixel_shuffle"});
  mhla::expect_error([] { static_cast<void>(io::Json{{"decoder_norm_types", "batch_norm"}}.get<DcaeOptions>()); },
                     {"decoder_norm_types", "rms_norm"});
  Dcae model(small_dcae());
  mhla::expect_error([&] { model.encode(torch::rand({1, 3, 9, 8})); }, {"pictures", "multiples of 2"});
  mhla::expect_error([&] { model.decode(torch::rand({1, 3, 4, 4})); }, {"latents", "[batch, 8, height, width]"});
}

}  // namespace
}  // namespace mhla::models
