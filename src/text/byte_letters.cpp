// The two directions of the alphabet.
#include "text/byte_letters.hpp"

#include "io/utf8.hpp"

namespace mhla::text {
namespace {

constexpr std::size_t kLetters = 0x100 + 68;  // 68 bytes do not print

constexpr bool prints(unsigned byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD); }

struct Alphabet {
  std::array<std::uint8_t, 256> order{};
  std::array<char16_t, 256> letter{};         // of a byte
  std::array<std::int16_t, kLetters> byte{};  // of a letter, or -1
};

constexpr Alphabet kAlphabet = [] {
  Alphabet all;
  all.byte.fill(-1);
  std::size_t place = 0;
  char16_t other = 0x100;
  for (const bool printing : {true, false})
    for (unsigned byte = 0; byte < 256; ++byte) {
      if (prints(byte) != printing) continue;
      all.order[place++] = static_cast<std::uint8_t>(byte);
      all.letter[byte] = printing ? static_cast<char16_t>(byte) : other++;
      all.byte[all.letter[byte]] = static_cast<std::int16_t>(byte);
    }
  return all;
}();

}  // namespace

const std::array<std::uint8_t, 256>& bytes_in_order() { return kAlphabet.order; }

std::string spelled(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const unsigned letter = kAlphabet.letter[static_cast<std::uint8_t>(byte)];
    if (letter >= 0x80) text += static_cast<char>(0xC0U | letter >> 6U);
    text += static_cast<char>(letter < 0x80 ? letter : 0x80U | (letter & 0x3FU));
  }
  return text;
}

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  while (!spelling.empty()) {
    const io::Utf8Character letter = io::first_character(spelling);
    if (letter.code >= kLetters || kAlphabet.byte[letter.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte[letter.code]);
    spelling.remove_prefix(letter.size);
  }
  return bytes;
}

}  // namespace mhla::text
