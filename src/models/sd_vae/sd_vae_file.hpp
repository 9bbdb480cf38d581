// The autoencoder of Stable Diffusion from files of diffusers.
#pragma once

#include <filesystem>
#include <memory>

#include "models/sd_vae/sd_vae.hpp"

namespace mhla::models {

// `path`: a folder with config.json and diffusion_pytorch_model.safetensors, or a .safetensors file. The config of a
// file is the config.json beside it; without one it is that of Stable Diffusion. In evaluation mode.
std::shared_ptr<SdVae> load_sd_vae(const std::filesystem::path& path, const at::Device& device = at::kCPU);

}  // namespace mhla::models
