// The video autoencoder of Wan2.1 from files.
#pragma once

#include <filesystem>
#include <memory>

#include "models/wan_vae/wan_vae.hpp"

namespace mhla::models {

// `path`: a folder of diffusers with config.json and diffusion_pytorch_model.safetensors, or a .safetensors file under
// Wan's or diffusers' names. The config of a file is the config.json beside it; without one it is that of Wan2.1. In
// evaluation mode.
std::shared_ptr<WanVae> load_wan_vae(const std::filesystem::path& path, at::Device device = at::kCPU,
                                     at::ScalarType type = at::kFloat);

}  // namespace mhla::models
