// Encoding word by word. A text repeats its words, so each is merged once.
#include "text/byte_bpe.hpp"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "mhla/types.hpp"
#include "text/fingerprint.hpp"
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

// The tokens of words seen before.
class KnownWords {
 public:
  KnownWords(const MergeTable& table, const std::array<Token, 256>& letters) : merger_(table), letters_(letters) {}

  void append(std::string_view word, std::vector<Token>& tokens) {
    const auto [found, is_new] = places_.try_emplace(word, Place{tokens.size(), 0});
    if (is_new) {
      word_.clear();
      for (const char byte : word) word_.push_back(letters_[static_cast<std::uint8_t>(byte)]);
      const std::span<const Token> merged = merger_.merge(word_);
      tokens.insert(tokens.end(), merged.begin(), merged.end());
      found->second.count = merged.size();
    } else {
      const Place place = found->second;
      for (std::size_t i = 0; i < place.count; ++i) tokens.push_back(tokens[place.first + i]);
    }
  }

 private:
  struct Place {  // where the word stands in the result
    std::size_t first, count;
  };

  Merger merger_;
  const std::array<Token, 256>& letters_;
  std::unordered_map<std::string_view, Place> places_;
  std::vector<Token> word_;
};

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
  std::vector<Token> tokens;
  tokens.reserve(text.size() / 3);
  KnownWords known(table_, letters_);
  while (!text.empty()) {
    const std::size_t size = first_word(text);
    known.append(text.substr(0, size), tokens);
    text.remove_prefix(size);
  }
  return tokens;
}

std::size_t ByteBpe::part(std::string_view text, std::size_t at_least) const { return whole_words(text, at_least); }

}  // namespace mhla::text
