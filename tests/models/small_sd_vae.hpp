// An autoencoder of Stable Diffusion that is quick to decode with: two pixels per latent.
#pragma once

#include <filesystem>
#include <memory>

#include "io/json.hpp"
#include "models/base/weights.hpp"
#include "models/sd_vae/sd_vae.hpp"

namespace mhla::models::testing {

// As diffusers stores it, with members of the config that do not concern its sizes.
inline std::shared_ptr<SdVae> save_small_sd_vae(const std::filesystem::path& folder) {
  torch::manual_seed(2);
  SdVaeOptions options;
  options.block_out_channels = {8, 8};
  options.layers_per_block = 1;
  options.norm_num_groups = 4;
  auto model = std::make_shared<SdVae>(options);
  model->eval();
  save_weights(*model, folder / "diffusion_pytorch_model.safetensors");
  io::Json config = options;
  config["_class_name"] = "AutoencoderKL";
  io::write_json((folder / "config.json").string(), config);
  return model;
}

}  // namespace mhla::models::testing
