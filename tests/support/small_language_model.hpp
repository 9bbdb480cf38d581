// A language model with random parameters and the small tokenizer, in memory or as files.
#pragma once

#include <filesystem>
#include <string>

#include "io/file.hpp"
#include "support/small_tokenizers.hpp"
#include "tasks/language/language_model.hpp"

namespace mhla::testing {

inline models::LmOptions small_language_options(const std::string& attention = "mhla") {
  models::LmOptions options;
  options.model = "lm_tiny";
  options.attention = {attention};
  options.vocabulary = 260;
  options.width = 32;
  options.depth = 2;
  options.heads = 2;
  options.mlp_width = 24;
  options.block_size = 16;
  options.blocks = 4;
  options.beyond = "clamp";
  return options;
}

inline tasks::LanguageModel small_language_model(const models::LmOptions& options = small_language_options()) {
  torch::manual_seed(11);
  auto model = std::make_shared<models::Lm>(options);
  const torch::NoGradGuard no_gradient;
  for (const auto& item : model->named_parameters())  // large enough for tokens to differ in likelihood
    if (item.key().find("mixing") == std::string::npos) item.value().mul_(4.0);
  model->eval();
  const std::string json = small_tokenizer_json();
  return {.model = model,
          .tokenizer = text::read_tokenizer(std::as_bytes(std::span(json)), "tokenizer.json"),
          .name = "small"};
}

// model.safetensors and tokenizer.json.
inline void save_small_language_model(const std::filesystem::path& folder,
                                      const models::LmOptions& options = small_language_options()) {
  const tasks::LanguageModel model = small_language_model(options);
  io::write_file(folder / "tokenizer.json", small_tokenizer_json());
  tasks::save_language_model(*model.model, *model.tokenizer, folder / "model.safetensors");
}

}  // namespace mhla::testing
