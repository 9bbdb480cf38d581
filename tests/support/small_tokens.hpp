// Splits of tokens to train a small language model on.
#pragma once

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "data/tokens/tokenize.hpp"
#include "support/small_tokenizers.hpp"

namespace mhla::testing {

// Sentences of a few words, which a model soon learns to spell.
inline std::string small_corpus(int documents, unsigned seed) {
  constexpr const char* kWords[] = {"the theme", "the thesis", "this", "that", "them"};
  std::mt19937 random(seed);
  std::string text;
  for (int document = 0; document < documents; ++document) {
    for (int word = 0; word < 12; ++word) text += std::string(word > 0 ? " " : "") + kWords[random() % 5];
    text += "\n<|endoftext|>\n";
  }
  return text;
}

// The folders train and val, and their tokenizer beside them; documents of about 60 tokens.
inline void write_small_tokens(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "tokenizer.json") << small_tokenizer_json();
  const auto tokenizer = text::open_tokenizer(folder);
  for (const auto& [split, documents, seed] : {std::tuple{"train", 40, 1U}, std::tuple{"val", 10, 2U}}) {
    const std::filesystem::path file = folder / (std::string(split) + ".txt");
    std::ofstream(file) << small_corpus(documents, seed);
    data::tokenize_files(*tokenizer, {file}, folder / split, 1 << 20);
  }
}

}  // namespace mhla::testing
