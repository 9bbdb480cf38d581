// Bytes of tokens, cut into characters.
#include "text/text_stream.hpp"

#include "io/utf8.hpp"

namespace mhla::text {

using io::Utf8Character;

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::string TextStream::add(Token token) {
  std::string_view piece = tokenizer_.piece(token);
  if (drop_space_ && !piece.empty()) {
    if (piece.front() == ' ') piece.remove_prefix(1);
    drop_space_ = false;
  }
  waiting_ += piece;
  std::string_view rest = waiting_;
  std::string text;
  while (!rest.empty()) {
    const Utf8Character character = io::first_character(rest);
    if (character.state == Utf8Character::State::cut) break;
    text += character.state == Utf8Character::State::complete ? rest.substr(0, character.size) : kReplacement;
    rest.remove_prefix(character.size);
  }
  waiting_ = std::string(rest);
  return text;
}

std::string TextStream::finish() {
  drop_space_ = tokenizer_.space_in_front();
  const bool begun = !waiting_.empty();
  waiting_.clear();
  return std::string(begun ? kReplacement : "");
}

}  // namespace mhla::text
