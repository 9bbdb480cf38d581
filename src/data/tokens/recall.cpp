// Keys and values drawn without repetition, and questions in places drawn the same way.
#include "data/tokens/recall.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <span>

#include "data/random_stream.hpp"
#include "io/new_folder.hpp"
#include "mhla/types.hpp"

namespace mhla::data {
namespace {

constexpr std::int64_t kFewestPairs = 4;

std::int64_t begin_of(const text::Tokenizer& tokenizer) {
  const text::SpecialTokens& special = tokenizer.special();
  if (!special.begin && !special.end)
    throw Error("the tokenizer has no token that begins or ends a text; documents could not be told apart");
  return special.begin ? *special.begin : *special.end;
}

// `count` different items in random order.
std::vector<std::int64_t> drawn(RandomStream& random, std::vector<std::int64_t> items, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    std::swap(items[static_cast<std::size_t>(i)],
              items[static_cast<std::size_t>(i + random.below(std::ssize(items) - i))]);
  items.resize(static_cast<std::size_t>(count));
  return items;
}

}  // namespace

RecallDocuments::RecallDocuments(const text::Tokenizer& tokenizer, std::int64_t length, std::int64_t most_pairs,
                                 std::uint64_t seed)
    : length_(length), begin_(begin_of(tokenizer)), seed_(seed) {
  if (most_pairs < kFewestPairs)
    throw Error(fmt::format("pairs are {}; at least {} are needed", most_pairs, kFewestPairs));
  if (length < 4 * most_pairs + 1)
    throw Error(fmt::format("length is {}; {} pairs and as many questions need at least {} tokens", length, most_pairs,
                            4 * most_pairs + 1));
  std::vector<std::int64_t> ordinary;
  for (text::Token token = 0; token < tokenizer.size(); ++token)
    if (token != begin_ && !tokenizer.piece(token).empty()) ordinary.push_back(token);
  if (std::ssize(ordinary) < 2 * most_pairs + 1)
    throw Error(fmt::format("pairs are {}; a vocabulary with {} tokens that stand for text has enough for {}",
                            most_pairs, ordinary.size(), (std::ssize(ordinary) - 1) / 2));
  filler_ = ordinary.front();
  const std::int64_t half = (std::ssize(ordinary) - 1) / 2;
  keys_.assign(ordinary.begin() + 1, ordinary.begin() + 1 + half);
  values_.assign(ordinary.end() - half, ordinary.end());
  for (std::int64_t pairs = kFewestPairs; pairs < most_pairs; pairs *= 2) pair_counts_.push_back(pairs);
  pair_counts_.push_back(most_pairs);
}

RecallDocument RecallDocuments::document(std::uint64_t number, std::int64_t pairs) const {
  RandomStream random{seed_, number};
  const std::int64_t choice = random.below(std::ssize(pair_counts_));
  if (pairs == 0) pairs = pair_counts_[static_cast<std::size_t>(choice)];
  if (pairs < 1 || pairs > pair_counts_.back())
    throw Error(fmt::format("pairs are {}; they may be 1 to {}", pairs, pair_counts_.back()));
  const std::vector<std::int64_t> keys = drawn(random, keys_, pairs), values = drawn(random, values_, pairs);
  RecallDocument document;
  document.tokens.push_back(begin_);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    document.tokens.push_back(keys[i]);
    document.tokens.push_back(values[i]);
  }
  std::vector<std::int64_t> slots(static_cast<std::size_t>((length_ - 1) / 2 - pairs));
  std::iota(slots.begin(), slots.end(), std::int64_t{0});
  const std::int64_t first = std::ssize(document.tokens);
  document.tokens.resize(static_cast<std::size_t>(length_), filler_);
  slots = drawn(random, std::move(slots), pairs);  // of the pairs in order
  for (std::int64_t pair = 0; pair < pairs; ++pair) {
    const auto i = static_cast<std::size_t>(pair);
    const std::int64_t place = first + 2 * slots[i] + 1;
    document.tokens[static_cast<std::size_t>(place - 1)] = keys[i];
    document.tokens[static_cast<std::size_t>(place)] = values[i];
    document.asked.push_back({place, place - (2 * pair + 2)});
  }
  std::ranges::sort(document.asked, {}, &RecallDocument::Asked::place);
  return document;
}

TokenIndex write_recall_documents(const text::Tokenizer& tokenizer, const RecallDocuments& documents,
                                  std::int64_t count, const std::filesystem::path& split, std::int64_t tokens_of_shard,
                                  const std::function<void(double done, std::int64_t tokens)>& progress) {
  if (count < 1) throw Error(fmt::format("documents are {}; at least 1 is needed", count));
  if (tokens_of_shard < 1 || tokens_of_shard > kMostTokensOfShard)
    throw Error(fmt::format("tokens_of_shard is {}; it may be 1 to {}", tokens_of_shard, kMostTokensOfShard));
  if (std::filesystem::exists(split)) throw Error(fmt::format("{}: exists already", split.string()));
  io::NewFolder folder(split);
  TokenIndex index{.tokenizer = tokenizer.fingerprint(), .vocabulary = tokenizer.size()};
  std::vector<Token> tokens;
  const auto write = [&](std::int64_t size) {
    const std::string file = fmt::format("{:06}.bin", index.shards.size());
    write_shard(folder.unfinished() / file, std::span(tokens).first(static_cast<std::size_t>(size)), index.vocabulary);
    tokens.erase(tokens.begin(), tokens.begin() + size);
    index.shards.push_back({file, size});
    index.tokens += size;
  };
  for (; index.documents < count; ++index.documents) {
    const RecallDocument document = documents.document(static_cast<std::uint64_t>(index.documents));
    index.begin = document.tokens.front();
    for (const std::int64_t token : document.tokens) {
      tokens.push_back(static_cast<Token>(token));
      if (token != index.begin) index.bytes += std::ssize(tokenizer.piece(tokens.back()));
    }
    while (std::ssize(tokens) >= tokens_of_shard) write(tokens_of_shard);
    if (progress)
      progress(static_cast<double>(index.documents + 1) / static_cast<double>(count),
               index.tokens + std::ssize(tokens));
  }
  if (!tokens.empty()) write(std::ssize(tokens));
  write_token_index(folder.unfinished(), index);
  folder.finish();
  return index;
}

}  // namespace mhla::data
