// Kinds of characters: a table for one byte, runs for the rest.
#include "text/characters.hpp"

#include <algorithm>
#include <array>
#include <iterator>

#include "io/utf8.hpp"

namespace mhla::text {
namespace {

constexpr auto kRuns = std::to_array<std::uint32_t>({
#include "text/unicode_table.inc"
});

constexpr CharacterKind kind_of(char32_t code) {
  const auto after = std::ranges::upper_bound(kRuns, 4 * static_cast<std::uint32_t>(code) + 3);
  return static_cast<CharacterKind>(*std::prev(after) & 3U);
}

constexpr std::array<CharacterKind, 128> kAscii = [] {
  std::array<CharacterKind, 128> kinds{};
  for (std::uint32_t code = 0; code < 128; ++code) kinds[code] = kind_of(code);
  return kinds;
}();

}  // namespace

Character first_kind(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 128) return {kAscii[first], 1};
  const io::Utf8Character character = io::first_character(text);
  if (character.state != io::Utf8Character::State::complete) return {CharacterKind::other, 1};
  return {kind_of(character.code), character.size};
}

}  // namespace mhla::text
