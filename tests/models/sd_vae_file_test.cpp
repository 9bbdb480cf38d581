// The autoencoder of Stable Diffusion as diffusers stores it.
#include "models/sd_vae/sd_vae_file.hpp"

#include <gtest/gtest.h>

#include <fstream>

#include "io/file.hpp"
#include "models/base/weights.hpp"
#include "models/small_sd_vae.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

TEST(SdVaeFile, AFolderOrItsFileGivesTheStoredAutoencoder) {
  const mhla::testing::TemporaryFolder folder;
  const auto stored = testing::save_small_sd_vae(folder / "vae");
  const at::Tensor latents = torch::randn({1, 4, 4, 4});
  const torch::NoGradGuard no_gradient;
  for (const char* path : {"vae", "vae/diffusion_pytorch_model.safetensors"}) {
    const auto loaded = load_sd_vae(folder / path);
    EXPECT_EQ(loaded->options.factor(), 2);
    EXPECT_TRUE(torch::equal(loaded->decode(latents), stored->decode(latents))) << path;
  }
}

TEST(SdVaeFile, OtherFilesAreRefusedWithTheReason) {
  const mhla::testing::TemporaryFolder folder;
  std::filesystem::create_directories(folder / "empty");
  expect_error([&] { load_sd_vae(folder / "empty"); },
               {"empty/diffusion_pytorch_model.safetensors: there is no such file", "config.json"});
  testing::save_small_sd_vae(folder / "vae");
  std::filesystem::remove(folder / "vae/config.json");  // then it would be the large one
  expect_error([&] { load_sd_vae(folder / "vae"); },
               {"vae/diffusion_pytorch_model.safetensors: it does not hold the autoencoder", "in the model"});
  io::write_file(folder / "vae/config.json", R"({"latent_channels": "many"})");
  expect_error([&] { load_sd_vae(folder / "vae"); }, {"vae/config.json: ", "latent_channels"});
}

}  // namespace
}  // namespace mhla::models
