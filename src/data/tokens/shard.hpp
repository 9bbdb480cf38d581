// Files of tokens as llm.c writes them: 256 int32 (magic number, version, count of tokens, zeros), then the tokens. All
// little-endian.
//
//   vocabulary        magic     version  a token is
//   up to 65,536      20240520  1        uint16
//   larger            20240801  7        uint32
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"

namespace mhla::data {

using text::Token;

inline constexpr std::int64_t kMostTokensOfShard = 0x7FFFFFFF;

// Tokens of a vocabulary of this size. Complete or not at all.
void write_shard(const std::filesystem::path& path, std::span<const Token> tokens, std::int64_t vocabulary);

// A file of tokens as memory that the system fills when it is read. The header is checked when it is opened.
class TokenShard {
 public:
  static TokenShard load(const std::filesystem::path& path);
  static TokenShard parse(std::vector<std::byte> bytes, std::string source);  // `source` names the file in errors

  const std::string& source() const { return source_; }
  std::int64_t size() const { return size_; }
  int bytes_per_token() const { return bytes_per_token_; }
  // Tokens first .. first + tokens.size() - 1. One outside the vocabulary is an error.
  void read(std::int64_t first, std::int64_t vocabulary, std::span<std::int64_t> tokens) const;

 private:
  TokenShard(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::string source);

  std::shared_ptr<const void> owner_;
  std::string source_;
  std::span<const std::byte> tokens_;
  std::int64_t size_ = 0;
  int bytes_per_token_ = 2;
};

}  // namespace mhla::data
