// Encoding word by word.
#include "text/byte_bpe.hpp"

#include <fmt/format.h>

#include <utility>

#include "mhla/types.hpp"
#include "text/fingerprint.hpp"
#include "text/known_words.hpp"
#include "text/pre_tokens.hpp"

namespace mhla::text {
namespace {

SpecialTokens roles(const std::vector<BpeModel::Special>& special) {
  SpecialTokens found;
  for (const auto& [token, name] : special) {
    if (name == "<|endoftext|>") found.begin = found.end = token;
    if (name == "<s>") found.begin = token;
    if (name == "</s>") found.end = token;
    if (name == "<unk>") found.unknown = token;
    if (name == "<pad>") found.pad = token;
  }
  return found;
}

std::string fingerprint_of(const BpeModel& model) {
  Fingerprint fingerprint;
  fingerprint.add("byte-level BPE");
  for (const std::string& piece : model.pieces) fingerprint.add(piece);
  for (const auto& [token, name] : model.special) {
    fingerprint.add(static_cast<std::uint64_t>(token));
    fingerprint.add(name);
  }
  for (const Merge& merge : model.merges)
    for (const Token token : {merge.left, merge.right, merge.result})
      fingerprint.add(static_cast<std::uint64_t>(token));
  return fingerprint.hexadecimal();
}

Vocabulary vocabulary_of(BpeModel model) {
  std::string fingerprint = fingerprint_of(model);
  return {.pieces = std::move(model.pieces), .special = roles(model.special), .fingerprint = std::move(fingerprint)};
}

}  // namespace

ByteBpe::ByteBpe(BpeModel model, const std::string& source)
    : Tokenizer(vocabulary_of(model)), merges_(model.merges.size()), table_(model.merges) {
  letters_.fill(-1);
  for (std::size_t i = 0; i < vocabulary().pieces.size(); ++i)
    if (const std::string& piece = vocabulary().pieces[i]; piece.size() == 1)
      letters_[static_cast<std::uint8_t>(piece[0])] = static_cast<Token>(i);
  for (std::size_t byte = 0; byte < letters_.size(); ++byte)
    if (letters_[byte] < 0) throw Error(fmt::format("{}: no token stands for the byte 0x{:02x}", source, byte));
}

std::vector<Token> ByteBpe::tokens_of(std::string_view text) const {
  std::vector<Token> tokens, letters;
  tokens.reserve(text.size() / 3);
  Merger merger(table_);
  KnownWords known(tokens);
  while (!text.empty()) {
    const std::size_t size = first_word(text);
    known.append(text.substr(0, size), [&](std::string_view word) {
      letters.clear();
      for (const char byte : word) letters.push_back(letters_[static_cast<std::uint8_t>(byte)]);
      return merger.merge(letters);
    });
    text.remove_prefix(size);
  }
  return tokens;
}

std::vector<std::string_view> ByteBpe::parts(std::string_view text, std::size_t at_least) const {
  return parts_of_words(text, at_least);
}

}  // namespace mhla::text
