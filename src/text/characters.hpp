// Characters by kind, as GPT-2's pattern tells them apart: \p{L}, \p{N}, \s and the rest.
#pragma once

#include <cstdint>
#include <string_view>

namespace mhla::text {

enum class CharacterKind : std::uint8_t { other, letter, number, space };

struct Character {
  CharacterKind kind;
  std::uint8_t size;  // bytes
};

// Of a text that is not empty. A byte that is not UTF-8 is a character of its own, of kind `other`.
Character first_kind(std::string_view text);

}  // namespace mhla::text
