// Language models from files: our own safetensors files, and folders of transformers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "models/base/weights.hpp"
#include "models/lm/lm.hpp"

namespace mhla::models {

// A file of save_model() or a folder with it, model.safetensors; or a folder with config.json and model.safetensors (or
// model.safetensors.index.json and the files it names). The model is float32, in evaluation mode. `beyond`: instead of
// the file's own LmOptions::beyond; empty: that. Throws an Error where a tensor is missing or left over.
std::shared_ptr<Lm> load_lm(const std::filesystem::path& path, const at::Device& device = at::kCPU,
                            const std::string& beyond = "");

// The options of the model that load_lm() would make.
LmOptions stored_lm_options(const std::filesystem::path& path);

// What fits of its tensors into another model (LoadMode::adapt).
LoadReport fill_lm(Lm& model, const std::filesystem::path& path);

}  // namespace mhla::models
