// Documents to evaluate a language model on, from files of text or a split of tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"

namespace mhla::tasks {

struct TextDocument {
  std::vector<std::int64_t> tokens;   // the one that begins a text, then those of the text
  std::int64_t bytes = 0, words = 0;  // of the text; words are what white space separates
};

// `data`: as `mhla tokenize` reads text, or folders it wrote, whose tokens must be of this tokenizer. `most`: the first
// documents; 0: all. Throws an Error where there is none.
std::vector<TextDocument> text_documents(const text::Tokenizer& tokenizer, const std::vector<std::string>& data,
                                         std::int64_t most = 0);

}  // namespace mhla::tasks
