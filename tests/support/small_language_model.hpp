// A language model with its tokenizer, small enough for a test: random weights, four blocks of eight tokens.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "io/file.hpp"
#include "models/small_lm.hpp"
#include "support/small_tokenizers.hpp"
#include "tasks/language/language_model.hpp"

namespace mhla::testing {

inline std::shared_ptr<const text::Tokenizer> tokenizer_of_bytes(const std::string& bytes) {
  return text::read_tokenizer(std::as_bytes(std::span(bytes)), "test");
}

inline models::LmOptions small_language_options(std::vector<std::string> attention = {"mhla"}) {
  models::LmOptions options = models::testing::small_lm_options(std::move(attention));
  options.vocabulary = 260;
  options.beyond = "clamp";
  return options;
}

inline tasks::LanguageModel small_language_model(const models::LmOptions& options = small_language_options()) {
  return {.model = models::testing::small_lm(options),
          .tokenizer = tokenizer_of_bytes(small_tokenizer_json()),
          .name = "small"};
}

// <folder>/model.safetensors and tokenizer.json.
inline void save_small_language_model(const std::filesystem::path& folder,
                                      const models::LmOptions& options = small_language_options()) {
  const tasks::LanguageModel small = small_language_model(options);
  tasks::save_language_model(*small.model, *small.tokenizer, folder / "model.safetensors");
  io::write_file(folder / "tokenizer.json", small_tokenizer_json());
}

}  // namespace mhla::testing
