// Training of byte-level BPE: starting from bytes, the most frequent pair of neighbours in the words becomes a token,
// again and again.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "text/byte_bpe.hpp"

namespace mhla::text {

// How often each word (pre_tokens.hpp) appears.
class WordCounts {
 public:
  void add(std::span<const std::string_view> texts);  // on the library's threads
  const std::unordered_map<std::string, std::int64_t>& words() const { return words_; }

 private:
  std::unordered_map<std::string, std::int64_t> words_;
};

inline constexpr std::int64_t kLeastVocabulary = 257;  // all bytes, and the token <|endoftext|>

// The vocabulary has `size` tokens, or fewer if no pair appears twice any more: bytes, merges, <|endoftext|>. It
// depends on the counts alone; of pairs equally frequent the one of the earlier tokens is merged.
BpeModel train_bpe(const WordCounts& counts, std::int64_t size,
                   const std::function<void(std::int64_t done, std::int64_t all)>& progress = nullptr);

}  // namespace mhla::text
