// GPT-2's tokenizer and one of SentencePiece, opened once.
#pragma once

#include <memory>

#include "text/tokenizer.hpp"

namespace mhla::text::testing {

inline std::filesystem::path data_file(const std::string& name) { return std::filesystem::path(MHLA_TEST_TEXT) / name; }

inline const Tokenizer& gpt2() {
  static const auto tokenizer = open_tokenizer(data_file("gpt2_encoder.json.gz"));
  return *tokenizer;
}

inline const Tokenizer& mistral() {
  static const auto tokenizer = open_tokenizer(data_file("mistral_v1_32000.model.gz"));
  return *tokenizer;
}

}  // namespace mhla::text::testing
