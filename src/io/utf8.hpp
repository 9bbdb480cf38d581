// UTF-8, character by character.
#pragma once

#include <cstdint>
#include <string_view>

namespace mhla::io {

struct Utf8Character {
  // `cut`: the text ends inside a character that is right so far.
  enum class State : std::uint8_t { complete, invalid, cut };

  char32_t code = 0xFFFD;  // the replacement character unless complete
  std::uint8_t size = 1;   // bytes; of what is not UTF-8, the longest part that could have begun a character
  State state = State::invalid;
};

// Of a text that is not empty. Overlong forms, surrogates and numbers above U+10FFFF are invalid.
Utf8Character first_character(std::string_view text);

}  // namespace mhla::io
