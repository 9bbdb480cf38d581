// UTF-8, letter by letter.
#include "io/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace mhla::io {
namespace {

std::uint8_t byte_of(char letter) { return static_cast<std::uint8_t>(letter); }

struct SecondByte {
  std::uint8_t low = 0x80, high = 0xBF;
};

// Narrower after those first bytes that would begin an overlong form, a surrogate or a number above U+10FFFF.
SecondByte second_byte(std::uint8_t first) {
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

// Bytes of the letter that `text` begins with; 0 where it is not UTF-8.
std::size_t letter_bytes(std::string_view text) {
  const std::uint8_t first = byte_of(text[0]);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t size = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (text.size() < size) return 0;
  const SecondByte second = second_byte(first);
  if (byte_of(text[1]) < second.low || byte_of(text[1]) > second.high) return 0;
  const auto continues = [](char letter) { return (byte_of(letter) & 0xC0U) == 0x80U; };
  return std::ranges::all_of(text.substr(2, size - 2), continues) ? size : 0;
}

bool is_control(std::string_view letter) {
  if (letter.size() == 1) return byte_of(letter[0]) < 0x20 || byte_of(letter[0]) == 0x7F;
  return byte_of(letter[0]) == 0xC2 && byte_of(letter[1]) < 0xA0;  // U+0080 to U+009F
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t size = letter_bytes(text);
    if (size == 0) return false;
    text.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const std::size_t size = letter_bytes(text);
    const std::string_view letter = text.substr(0, std::max<std::size_t>(size, 1));
    if (size > 0 && (!is_control(letter) || kept.find(letter[0]) != std::string_view::npos))
      shown += letter;
    else
      for (const char part : letter) shown += fmt::format("\\x{:02x}", byte_of(part));
    text.remove_prefix(letter.size());
  }
  return shown;
}

}  // namespace mhla::io
