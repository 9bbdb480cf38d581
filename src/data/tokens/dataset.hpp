// The tokens of a split as `mhla tokenize` leaves them: a folder with index.json and shards (shard.hpp). Documents lie
// one after another, each behind the token that begins a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/tokens/shard.hpp"

namespace mhla::data {

// index.json.
struct TokenIndex {
  struct Shard {
    std::string file;
    std::int64_t tokens = 0;
  };

  std::string tokenizer;  // its fingerprint
  std::int64_t vocabulary = 0;
  std::int64_t begin = 0;  // the token before each document
  std::int64_t tokens = 0, documents = 0;
  std::int64_t bytes = 0;  // of the text
  std::vector<Shard> shards = {};
};

TokenIndex read_token_index(const std::filesystem::path& folder);
void write_token_index(const std::filesystem::path& folder, const TokenIndex& index);

// Any number of threads may read.
class TokenDataset {
 public:
  explicit TokenDataset(const std::filesystem::path& folder);

  const TokenIndex& index() const { return index_; }
  std::int64_t size() const { return index_.tokens; }

  // Tokens first .. first + tokens.size() - 1 of all shards in a row.
  void read(std::int64_t first, std::span<std::int64_t> tokens) const;
  // Where documents begin, found by reading everything.
  std::vector<std::int64_t> document_starts() const;

 private:
  TokenIndex index_;
  std::vector<TokenShard> shards_;
  std::vector<std::int64_t> firsts_;  // of each shard
  std::string name_;
};

}  // namespace mhla::data
