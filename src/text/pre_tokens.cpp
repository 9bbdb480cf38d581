// The pattern by hand: no expression engine, one pass.
#include "text/pre_tokens.hpp"

#include <algorithm>
#include <array>

#include "text/characters.hpp"

namespace mhla::text {
namespace {

// 0 where there is none.
std::size_t contraction(std::string_view text) {
  constexpr std::array<std::string_view, 7> kEndings{"s", "t", "re", "ve", "m", "ll", "d"};
  const std::string_view after = text.substr(1);
  for (const std::string_view ending : kEndings)
    if (after.starts_with(ending)) return 1 + ending.size();
  return 0;
}

// Where the characters of `kind` that begin at `at` end.
std::size_t run_end(std::string_view text, std::size_t at, CharacterKind kind) {
  while (at < text.size()) {
    const Character next = first_kind(text.substr(at));
    if (next.kind != kind) break;
    at += next.size;
  }
  return at;
}

// White space leaves its last character to what follows it, unless it has only one.
std::size_t space_end(std::string_view text) {
  std::size_t end = 0, last = 0;
  while (end < text.size()) {
    const Character next = first_kind(text.substr(end));
    if (next.kind != CharacterKind::space) return last > 0 ? last : end;
    last = end;
    end += next.size;
  }
  return end;
}

bool is_ascii_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

}  // namespace

std::size_t first_word(std::string_view text) {
  if (text[0] == '\'')
    if (const std::size_t size = contraction(text); size > 0) return size;
  const std::size_t space = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const Character first = first_kind(text.substr(space));
  if (first.kind == CharacterKind::space) return space_end(text);
  return run_end(text, space + first.size, first.kind);
}

std::vector<std::string_view> parts_of_words(std::string_view text, std::size_t at_least) {
  std::vector<std::string_view> parts;
  at_least = std::max<std::size_t>(at_least, 1);
  std::size_t begin = 0;
  for (std::size_t at = at_least; at < text.size(); ++at) {
    const bool ascii_before = static_cast<unsigned char>(text[at - 1]) < 128;
    if (!is_ascii_space(text[at]) || !ascii_before || is_ascii_space(text[at - 1])) continue;
    parts.push_back(text.substr(begin, at - begin));
    begin = at;
    at += at_least - 1;
  }
  if (begin < text.size()) parts.push_back(text.substr(begin));
  return parts;
}

}  // namespace mhla::text
