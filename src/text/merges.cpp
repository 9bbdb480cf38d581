// Pairs in a hash table, candidates in a heap, the word as a linked list: n log n for a word of n bytes.
#include "text/merges.hpp"

#include <algorithm>
#include <bit>

namespace mhla::text {
namespace {

constexpr Token kGone = -1;

std::uint64_t pair_of(Token left, Token right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32U | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::span<const Merge> merges) : slots_(std::bit_ceil(2 * merges.size() + 1)) {
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::uint64_t pair = pair_of(merges[rank].left, merges[rank].right);
    std::size_t at = first_slot(pair);
    while (slots_[at].entry.rank != kNone && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
    if (slots_[at].entry.rank == kNone) slots_[at] = {pair, {static_cast<std::uint32_t>(rank), merges[rank].result}};
  }
}

std::size_t MergeTable::first_slot(std::uint64_t pair) const {
  const std::uint64_t hash = (pair ^ pair >> 29U) * 0x9E3779B97F4A7C15U;
  return (hash ^ hash >> 32U) & (slots_.size() - 1);
}

MergeTable::Entry MergeTable::find(Token left, Token right) const {
  const std::uint64_t pair = pair_of(left, right);
  std::size_t at = first_slot(pair);
  while (slots_[at].entry.rank != kNone && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return slots_[at].entry;
}

bool Merger::later(const Candidate& a, const Candidate& b) {
  return a.rank != b.rank ? a.rank > b.rank : a.place > b.place;
}

void Merger::consider(std::int32_t left, std::int32_t right) {
  const MergeTable::Entry entry = table_.find(tokens_[left], tokens_[right]);
  if (entry.rank == MergeTable::kNone) return;
  heap_.push_back({entry.rank, left, tokens_[left], tokens_[right]});
  std::ranges::push_heap(heap_, later);
}

std::span<const Token> Merger::merge(std::span<const Token> letters) {
  const auto count = static_cast<std::int32_t>(letters.size());
  tokens_.assign(letters.begin(), letters.end());
  before_.resize(letters.size());
  after_.resize(letters.size());
  for (std::int32_t i = 0; i < count; ++i) {
    before_[i] = i - 1;
    after_[i] = i + 1;
  }
  heap_.clear();
  for (std::int32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!heap_.empty()) {
    std::ranges::pop_heap(heap_, later);
    const Candidate best = heap_.back();
    heap_.pop_back();
    const std::int32_t right = after_[best.place];
    if (tokens_[best.place] != best.left || right == count || tokens_[right] != best.right) continue;
    tokens_[best.place] = table_.find(best.left, best.right).result;
    tokens_[right] = kGone;
    after_[best.place] = after_[right];
    if (after_[right] < count) {
      before_[after_[right]] = best.place;
      consider(best.place, after_[best.place]);
    }
    if (best.place > 0) consider(before_[best.place], best.place);
  }
  std::erase(tokens_, kGone);
  return tokens_;
}

}  // namespace mhla::text
