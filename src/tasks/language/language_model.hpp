// A language model with its tokenizer, from files.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <memory>
#include <string>

#include "io/json.hpp"
#include "models/lm/lm.hpp"
#include "text/tokenizer.hpp"

namespace mhla::tasks {

struct LanguageModel {
  std::shared_ptr<models::Lm> model;  // in evaluation mode
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::string name;  // of the folder, or of the file without its extension
};

// `path`: a folder of `mhla train language` or of transformers, or a .safetensors file. `tokenizer`: its file or
// folder; empty: `<name>_tokenizer.json` beside the file, else what is in the folder. Throws an Error where the
// tokenizer is not the one the model was trained with, or has more tokens than it. `beyond`: what MHLA does with more
// blocks than it was trained for, instead of what the file says.
LanguageModel open_language_model(const std::filesystem::path& path, const std::filesystem::path& tokenizer = {},
                                  const at::Device& device = at::kCPU, const std::string& beyond = "");

// Weights, config, and the fingerprint of the tokenizer; `more` is put into the metadata as it is.
void save_language_model(const models::Lm& model, const text::Tokenizer& tokenizer, const std::filesystem::path& path,
                         at::ScalarType dtype = at::kFloat, const io::Json& more = io::Json::object());

}  // namespace mhla::tasks
