// Text to tokens and back, whatever the kind of the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::text {

using Token = std::int32_t;

// Tokens that stand for no text. GPT-2's <|endoftext|> is both `begin` and `end`.
struct SpecialTokens {
  std::optional<Token> begin, end, unknown, pad;
};

// What any tokenizer is made of.
struct Vocabulary {
  std::vector<std::string> pieces;  // the bytes each token stands for: parts of characters too; none for special tokens
  SpecialTokens special;
  bool space_in_front = false;  // encoding puts a space before the text, which decoding takes away
  std::string fingerprint;
};

// Any number of threads may use one.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string_view kind() const = 0;                                                  // for people
  std::int64_t size() const { return static_cast<std::int64_t>(vocabulary_.pieces.size()); }  // tokens are below
  const SpecialTokens& special() const { return vocabulary_.special; }
  bool space_in_front() const { return vocabulary_.space_in_front; }
  // 16 hexadecimal digits, equal if text has the same tokens, in whatever files they are stored.
  const std::string& fingerprint() const { return vocabulary_.fingerprint; }

  // Adds no special token: "<s>" or "<|endoftext|>" in a text is text. At most kMostBytes at once; larger texts by
  // encode_all (encode_all.hpp).
  std::vector<Token> encode(std::string_view text) const;
  static constexpr std::size_t kMostBytes = std::size_t{1} << 28;
  // Always UTF-8: other bytes become U+FFFD. Special tokens are nothing. Token by token: TextStream (text_stream.hpp).
  std::string decode(std::span<const Token> tokens) const;
  std::string_view piece(Token token) const;  // refuses what is no token

  // The text in parts of `at_least` bytes or more, for several threads: their tokens, one part after another, are those
  // of the text. A text in which no place to cut is found is one part.
  virtual std::vector<std::string_view> parts(std::string_view text, std::size_t at_least) const;

 protected:
  explicit Tokenizer(Vocabulary vocabulary);
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  virtual std::vector<Token> tokens_of(std::string_view text) const = 0;

  Vocabulary vocabulary_;
};

// A file or a folder of one; any file may be gzip-compressed:
//   tokenizer.json                    byte-level BPE as Hugging Face tokenizers stores it
//   encoder.json with vocab.bpe       GPT-2's files, also named vocab.json with merges.txt
//   *.model                           SentencePiece
std::shared_ptr<const Tokenizer> open_tokenizer(const std::filesystem::path& path);

// Whether the folder has a file that open_tokenizer would take.
bool has_tokenizer(const std::filesystem::path& folder);

// Its files, uncompressed and under the first of these names, into a folder that then opens as the same tokenizer.
void copy_tokenizer(const std::filesystem::path& path, const std::filesystem::path& folder);

// One that is a single file, from its bytes; `source` names it in errors.
std::shared_ptr<const Tokenizer> read_tokenizer(std::span<const std::byte> bytes, const std::string& source);

}  // namespace mhla::text
