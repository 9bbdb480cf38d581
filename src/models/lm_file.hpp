// Language models from files: our own safetensors files, and folders of transformers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "models/lm/lm.hpp"

namespace mhla::models {

// A file of save_model() or a folder with it, model.safetensors; or a folder with config.json and model.safetensors (or
// model.safetensors.index.json and the files it names). The model is float32, in evaluation mode. Throws an Error where
// a tensor is missing or left over. `beyond`: instead of the model's own option; empty: that.
std::shared_ptr<Lm> load_lm(const std::filesystem::path& path, const at::Device& device = at::kCPU,
                            const std::string& beyond = {});

}  // namespace mhla::models
