// Language models from files: our own safetensors files, and folders of transformers.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "io/json.hpp"
#include "models/lm/lm.hpp"

namespace mhla::models {

// A file of save_model(), or a folder with config.json and model.safetensors (or model.safetensors.index.json and the
// files it names). The model is float32, in evaluation mode. Throws an Error where a tensor is missing or left over.
std::shared_ptr<Lm> load_lm(const std::filesystem::path& path, const at::Device& device = at::kCPU);

// What a config.json of transformers means: "llama" and "mistral", and the authors' "gla", whose layers are MHLA unless
// it says otherwise. `source` begins errors. Throws an Error that names what this library cannot do.
LmOptions lm_options_of_transformers(const io::Json& config, const std::string& source);

}  // namespace mhla::models
