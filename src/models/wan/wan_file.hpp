// The video transformer from files.
#pragma once

#include <filesystem>
#include <memory>

#include "models/wan/wan.hpp"

namespace mhla::models {

// `path`: a .safetensors file, or a folder with diffusion_pytorch_model.safetensors or its index, under Wan's,
// diffusers' or the authors' names. Options are those a file of save_model has; for others they follow from the tensors
// and the config.json beside them (wan_config.hpp). All tensors must fit, none may be left over. In evaluation mode.
std::shared_ptr<Wan> load_wan(const std::filesystem::path& path, at::Device device = at::kCPU,
                              at::ScalarType type = at::kFloat);

}  // namespace mhla::models
