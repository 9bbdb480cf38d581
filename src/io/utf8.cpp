// UTF-8, byte by byte.
#include "io/utf8.hpp"

#include <cstddef>

namespace mhla::io {
namespace {

std::uint8_t at(std::string_view text, std::size_t place) { return static_cast<std::uint8_t>(text[place]); }

struct Bytes {
  std::uint8_t low = 0x80, high = 0xBF;
  bool hold(std::uint8_t byte) const { return byte >= low && byte <= high; }
};

// Narrower after those first bytes that would begin an overlong form, a surrogate or a number above U+10FFFF.
Bytes second_bytes(std::uint8_t first) {
  switch (first) {
    case 0xE0:
      return {.low = 0xA0};
    case 0xED:
      return {.high = 0x9F};
    case 0xF0:
      return {.low = 0x90};
    case 0xF4:
      return {.high = 0x8F};
    default:
      return {};
  }
}

}  // namespace

Utf8Character first_character(std::string_view text) {
  using State = Utf8Character::State;
  const std::uint8_t first = at(text, 0);
  if (first < 0x80) return {first, 1, State::complete};
  if (first < 0xC2 || first > 0xF4) return {};
  const std::uint8_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  char32_t code = first & (0x7FU >> size);
  Bytes allowed = second_bytes(first);
  for (std::uint8_t i = 1; i < size; ++i) {
    if (text.size() == i) return {.size = i, .state = State::cut};
    if (!allowed.hold(at(text, i))) return {.size = i};
    code = code << 6U | (at(text, i) & 0x3FU);
    allowed = {};
  }
  return {code, size, State::complete};
}

}  // namespace mhla::io
