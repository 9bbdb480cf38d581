// Counts of pairs, kept up to date where a merge changes them. A heap has the most frequent one; its counts may be out
// of date, which shows when an entry is taken out.
#include "text/bpe_training.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "mhla/parallel.hpp"
#include "mhla/types.hpp"
#include "text/byte_letters.hpp"
#include "text/pre_tokens.hpp"

namespace mhla::text {
namespace {

constexpr std::size_t kShare = std::size_t{1} << 20;  // bytes that a thread takes at once
constexpr std::int64_t kMostVocabulary = std::int64_t{1} << 24;
constexpr const char* kEndOfText = "<|endoftext|>";

using Pair = std::pair<Token, Token>;

struct PairHash {
  std::size_t operator()(const Pair& pair) const {
    const auto both = static_cast<std::uint64_t>(pair.first) << 32U | static_cast<std::uint64_t>(pair.second);
    return (both ^ both >> 29U) * 0x9E3779B97F4A7C15U;
  }
};

class Trainer {
 public:
  explicit Trainer(const WordCounts& counts) {
    std::array<Token, 256> letters{};
    for (const std::uint8_t byte : bytes_in_order()) letters[byte] = token_of(std::string(1, static_cast<char>(byte)));
    std::vector<std::pair<std::string_view, std::int64_t>> sorted(counts.words().begin(), counts.words().end());
    std::ranges::sort(sorted);
    for (const auto& [bytes, count] : sorted) {
      Word word{.count = count};
      for (const char byte : bytes) word.tokens.push_back(letters[static_cast<std::uint8_t>(byte)]);
      words_.push_back(std::move(word));
    }
    for (std::size_t w = 0; w < words_.size(); ++w)
      for (std::size_t i = 0; i + 1 < words_[w].tokens.size(); ++i)
        change({words_[w].tokens[i], words_[w].tokens[i + 1]}, words_[w].count, w);
    push_grown();
  }

  std::int64_t size() const { return std::ssize(model_.pieces); }

  // False where no pair appears twice.
  bool merge_next() {
    while (!heap_.empty()) {
      std::ranges::pop_heap(heap_);
      const Candidate top = heap_.back();
      heap_.pop_back();
      const Pair pair{-top.left, -top.right};
      const auto found = pairs_.find(pair);
      if (found == pairs_.end()) continue;
      if (found->second.count != top.count) {
        push(pair, found->second.count);
        continue;
      }
      if (top.count < 2) return false;
      const std::vector<std::uint32_t> places = std::move(found->second.words);
      merge(pair, places);
      return true;
    }
    return false;
  }

  BpeModel finish() {
    model_.special.push_back({static_cast<Token>(size()), kEndOfText});
    model_.pieces.emplace_back();
    return std::move(model_);
  }

 private:
  struct Word {
    std::int64_t count = 0;
    std::vector<Token> tokens{};
  };
  struct PairCount {
    std::int64_t count = 0;
    std::vector<std::uint32_t> words{};  // those that had it at some time
  };
  struct Candidate {  // the largest is merged next
    std::int64_t count;
    Token left, right;  // negated: of equal counts the smaller tokens

    friend auto operator<=>(const Candidate&, const Candidate&) = default;
  };

  // Two ways may lead to the same bytes.
  Token token_of(const std::string& bytes) {
    const auto [found, is_new] = tokens_.try_emplace(bytes, static_cast<Token>(size()));
    if (is_new) model_.pieces.push_back(bytes);
    return found->second;
  }

  void push(const Pair& pair, std::int64_t count) {
    if (count < 1) return;
    heap_.push_back({count, -pair.first, -pair.second});
    std::ranges::push_heap(heap_);
  }

  void change(const Pair& pair, std::int64_t by, std::size_t word) {
    PairCount& known = pairs_[pair];
    known.count += by;
    if (by < 0) return;
    if (known.words.empty() || known.words.back() != word) known.words.push_back(static_cast<std::uint32_t>(word));
    grown_.push_back(pair);
  }

  void push_grown() {
    std::ranges::sort(grown_);
    const auto repeated = std::ranges::unique(grown_);
    grown_.erase(repeated.begin(), repeated.end());
    for (const Pair& pair : grown_) push(pair, pairs_[pair].count);
    grown_.clear();
  }

  void merge(const Pair& pair, const std::vector<std::uint32_t>& places) {
    const auto [left, right] = pair;
    const Token both = token_of(model_.pieces[left] + model_.pieces[right]);
    model_.merges.push_back({left, right, both});
    std::vector<Token> merged;
    for (const std::uint32_t w : places) {
      const std::vector<Token>& tokens = words_[w].tokens;
      const std::int64_t count = words_[w].count;
      merged.clear();
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] != left || i + 1 == tokens.size() || tokens[i + 1] != right) {
          merged.push_back(tokens[i]);
          continue;
        }
        if (!merged.empty()) {
          change({merged.back(), left}, -count, w);
          change({merged.back(), both}, count, w);
        }
        if (i + 2 < tokens.size()) {
          change({right, tokens[i + 2]}, -count, w);
          change({both, tokens[i + 2]}, count, w);
        }
        merged.push_back(both);
        ++i;
      }
      words_[w].tokens = merged;
    }
    pairs_.erase(pair);
    push_grown();
  }

  BpeModel model_;
  std::vector<Word> words_;
  std::unordered_map<std::string, Token> tokens_;
  std::unordered_map<Pair, PairCount, PairHash> pairs_;
  std::vector<Candidate> heap_;
  std::vector<Pair> grown_;  // their counts, since the last merge
};

}  // namespace

void WordCounts::add(std::span<const std::string_view> texts) {
  std::vector<std::string_view> parts;
  for (const std::string_view text : texts)
    for (const std::string_view part : parts_of_words(text, kShare)) parts.push_back(part);
  std::mutex mutex;
  default_parallel().for_each(static_cast<std::int64_t>(parts.size()), [&](std::int64_t i) {
    std::unordered_map<std::string_view, std::int64_t> counts;
    for (std::string_view rest = parts[i]; !rest.empty();) {
      const std::size_t size = first_word(rest);
      ++counts[rest.substr(0, size)];
      rest.remove_prefix(size);
    }
    const std::lock_guard lock(mutex);
    for (const auto& [word, count] : counts) words_[std::string(word)] += count;
  });
}

BpeModel train_bpe(const WordCounts& counts, std::int64_t size,
                   const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  if (size < kLeastVocabulary || size > kMostVocabulary)
    throw Error(fmt::format("size is {}; it may be {} to {}", size, kLeastVocabulary, kMostVocabulary));
  Trainer trainer(counts);
  while (trainer.size() + 1 < size && trainer.merge_next())
    if (progress) progress(trainer.size() + 1, size);
  return trainer.finish();
}

}  // namespace mhla::text
