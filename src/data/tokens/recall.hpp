// Synthetic documents that ask for what they said before: pairs of a key and a value, then some of the keys again, each
// followed by its value. What a key is followed by cannot be known but from the document.
//
//   begin  key value key value ..  then pairs of tokens: filler filler, or a key of before and its value
//
// Every key is asked for once, somewhere in the rest of the document. A document is of its seed and number alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "data/tokens/dataset.hpp"
#include "text/tokenizer.hpp"

namespace mhla::data {

struct RecallDocument {
  struct Asked {
    std::int64_t place;     // of the value that is to be known
    std::int64_t distance;  // how many tokens before it the value was said
  };

  std::vector<std::int64_t> tokens;
  std::vector<Asked> asked;  // by place
};

class RecallDocuments {
 public:
  // Of this many tokens each and at most so many pairs: 4 pairs and one token at least. Throws an Error where the
  // vocabulary has too few tokens that stand for text: half of them are keys, half of them values.
  RecallDocuments(const text::Tokenizer& tokenizer, std::int64_t length, std::int64_t most_pairs, std::uint64_t seed);

  // `pairs`: at most most_pairs, 0: one of pair_counts(), by the number of the document.
  RecallDocument document(std::uint64_t number, std::int64_t pairs = 0) const;

  const std::vector<std::int64_t>& pair_counts() const { return pair_counts_; }  // 4, 8, 16 .. most_pairs

 private:
  std::int64_t length_, begin_, filler_ = 0;
  std::uint64_t seed_;
  std::vector<std::int64_t> keys_, values_, pair_counts_;
};

// Writes documents 0 to count - 1 as tokenize_files writes those of text.
TokenIndex write_recall_documents(const text::Tokenizer& tokenizer, const RecallDocuments& documents,
                                  std::int64_t count, const std::filesystem::path& split, std::int64_t tokens_of_shard,
                                  const std::function<void(double done, std::int64_t tokens)>& progress = nullptr);

}  // namespace mhla::data
