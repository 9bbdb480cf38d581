// Byte-level byte-pair encoding, as of GPT-2: words of bytes, merged by a list of pairs.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "text/merges.hpp"
#include "text/tokenizer.hpp"

namespace mhla::text {

struct BpeModel {
  struct Special {
    Token token;
    std::string name;
  };

  std::vector<std::string> pieces;  // the bytes of each token; of special ones nothing
  std::vector<Merge> merges;        // by rank
  std::vector<Special> special;     // by token
};

class ByteBpe final : public Tokenizer {
 public:
  // `source` begins the message where a byte has no token.
  ByteBpe(BpeModel model, const std::string& source);

  std::string_view kind() const override { return "byte-level BPE"; }
  std::vector<std::string_view> parts(std::string_view text, std::size_t at_least) const override;

  std::size_t merges() const { return merges_; }

 private:
  std::vector<Token> tokens_of(std::string_view text) const override;

  std::size_t merges_;
  MergeTable table_;
  std::array<Token, 256> letters_{};  // of single bytes
};

}  // namespace mhla::text
