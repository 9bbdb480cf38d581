// Escapes of control characters and of bytes that are not UTF-8.
#include "io/printable.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "io/utf8.hpp"

namespace mhla::io {
namespace {

std::uint8_t byte_of(char letter) { return static_cast<std::uint8_t>(letter); }

bool is_control(std::string_view letter) {
  if (letter.size() == 1) return byte_of(letter[0]) < 0x20 || byte_of(letter[0]) == 0x7F;
  return byte_of(letter[0]) == 0xC2 && byte_of(letter[1]) < 0xA0;  // U+0080 to U+009F
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Character letter = first_character(text);
    if (letter.state != Utf8Character::State::complete) return false;
    text.remove_prefix(letter.size);
  }
  return true;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const Utf8Character first = first_character(text);
    const std::string_view letter = text.substr(0, first.size);
    if (first.state == Utf8Character::State::complete &&
        (!is_control(letter) || kept.find(letter[0]) != std::string_view::npos))
      shown += letter;
    else
      for (const char part : letter) shown += fmt::format("\\x{:02x}", byte_of(part));
    text.remove_prefix(letter.size());
  }
  return shown;
}

}  // namespace mhla::io
