// What a language model remembers of its context: pairs of a key and a value (data/tokens/recall.hpp), and a fact
// hidden in a text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/language/clustered_mean.hpp"
#include "tasks/language/language_model.hpp"
#include "tasks/language/likelihood.hpp"

namespace mhla::tasks {

struct RecallOptions {
  std::vector<std::int64_t> lengths = {};  // of documents, in tokens; none: default_recall_lengths()
  std::int64_t most_pairs = 64;
  std::int64_t documents = 32;  // for each length and number of pairs
  std::int64_t needles = 16;    // for each length and depth
  std::uint64_t seed = 1;
  std::int64_t tokens_at_once = kTokensAtOnce;
};

// How often a value was right: the likeliest of the vocabulary, or the likeliest of all values in its document.
struct RecallScore {
  MeanWithError exact, chosen;
};

struct PairsScore {
  std::int64_t length, pairs;
  RecallScore score;
  double chance() const { return 1.0 / static_cast<double>(pairs); }  // of `chosen`
};

// Values said `first` to `last` tokens before they are asked for, over all numbers of pairs.
struct DistanceScore {
  std::int64_t length, first, last;
  RecallScore score;
};

// `exact`: every token of the fact is the likeliest one. `chosen`: it is the likeliest of kNeedleChoices facts.
struct NeedleScore {
  std::int64_t length;
  double depth;  // 0: at the beginning of the text, 1: at its end
  RecallScore score;
};
inline constexpr std::int64_t kNeedleChoices = 16;

struct Recall {
  RecallOptions options;
  std::vector<PairsScore> pairs = {};
  std::vector<DistanceScore> distances = {};
  std::vector<NeedleScore> needles = {};
  double seconds = 0.0;
};

inline constexpr std::int64_t kShortestRecall = 128;  // a fact with its question fits into it, byte by byte

// Of 256, 512, 1,024 and 2,048 those that the model takes.
std::vector<std::int64_t> default_recall_lengths(const models::Lm& model);

// Depends on the model, the options and the tokenizer alone.
Recall recall(const LanguageModel& model, const RecallOptions& options, const TokensDone& done = nullptr);

// How many tokens `done` will be told of, about.
double recall_tokens(const RecallOptions& options);

}  // namespace mhla::tasks
