// Byte-pair encoding of one word: neighbours are merged, the pair of the lowest rank first, until none can be.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "text/tokenizer.hpp"

namespace mhla::text {

struct Merge {
  Token left, right, result;

  friend bool operator==(const Merge&, const Merge&) = default;
};

class MergeTable {
 public:
  struct Entry {
    std::uint32_t rank;
    Token result;
  };
  static constexpr std::uint32_t kNone = 0xFFFFFFFFU;  // the rank of a pair that is not merged

  // The place of a merge is its rank; of a pair that appears twice the first counts.
  explicit MergeTable(std::span<const Merge> merges);

  Entry find(Token left, Token right) const;

 private:
  struct Slot {
    std::uint64_t pair = ~std::uint64_t{0};
    Entry entry{kNone, 0};
  };
  std::size_t first_slot(std::uint64_t pair) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
};

// Merges in words; keeps its memory from one to the next.
class Merger {
 public:
  explicit Merger(const MergeTable& table) : table_(table) {}

  // The tokens of a word, given those of its bytes. They live until the next call.
  std::span<const Token> merge(std::span<const Token> letters);

 private:
  struct Candidate {
    std::uint32_t rank;
    std::int32_t place;  // of the left one
    Token left, right;   // as they were
  };
  static bool later(const Candidate& a, const Candidate& b);
  void consider(std::int32_t left, std::int32_t right);

  const MergeTable& table_;
  std::vector<Token> tokens_;
  std::vector<std::int32_t> before_, after_;
  std::vector<Candidate> heap_;
};

}  // namespace mhla::text
