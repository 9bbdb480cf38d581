// Tokens to text as they come: a character is printed when all its bytes are there.
#pragma once

#include <string>

#include "text/tokenizer.hpp"

namespace mhla::text {

class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer), drop_space_(tokenizer.space_in_front()) {}

  // The text that is certain now: whole characters, and U+FFFD for bytes that cannot become one any more.
  std::string add(Token token);
  // What is left at the end: U+FFFD for a character that was begun. The next token begins another text.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool drop_space_;
  std::string waiting_;  // the beginning of a character
};

}  // namespace mhla::text
