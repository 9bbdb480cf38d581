// Documents of equal length make a batch; needles are groups of texts with different words at their ends.
#include "tasks/language/recall.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <map>
#include <span>

#include "data/tokens/recall.hpp"
#include "mhla/types.hpp"
#include "tasks/language/continuation.hpp"
#include "tasks/language/generation.hpp"
#include "tasks/language/needle.hpp"

namespace mhla::tasks {
namespace {

constexpr std::array kDepths = {0.0, 0.25, 0.5, 0.75, 1.0};

struct Tally {
  ClusteredMean exact, chosen;

  void add(std::int64_t cluster, bool is_exact, bool is_chosen) {
    exact.add(cluster, is_exact ? 1.0 : 0.0);
    chosen.add(cluster, is_chosen ? 1.0 : 0.0);
  }
  RecallScore score() const { return {exact.result(), chosen.result()}; }
};

using ByDistance = std::map<std::int64_t, Tally>;  // by power of two

// Logits where a document asks, of a batch of documents of equal length; what each answers goes to `add`.
template <typename Add>
void answer(models::Lm& model, const std::vector<data::RecallDocument>& documents, const Add& add) {
  const auto length = std::ssize(documents.front().tokens);
  at::Tensor ids = at::empty({std::ssize(documents), length}, at::kLong);
  for (std::size_t i = 0; i < documents.size(); ++i)
    std::ranges::copy(documents[i].tokens,
                      ids.mutable_data_ptr<std::int64_t>() + static_cast<std::int64_t>(i) * length);
  const at::Tensor hidden = model.hidden(ids);
  for (std::size_t i = 0; i < documents.size(); ++i) {
    std::vector<std::int64_t> places, values;
    for (const auto& asked : documents[i].asked) {
      places.push_back(asked.place - 1);
      values.push_back(documents[i].tokens[static_cast<std::size_t>(asked.place)]);
    }
    const at::Tensor rows =
        hidden[static_cast<std::int64_t>(i)].index_select(0, torch::tensor(places).to(hidden.device()));
    const at::Tensor logits = model.logits(rows).to(at::kCPU, at::kFloat), labels = torch::tensor(values);
    const at::Tensor exact = logits.argmax(1) == labels;
    const at::Tensor chosen = logits.index_select(1, labels).argmax(1) == at::arange(labels.size(0));
    for (std::size_t k = 0; k < places.size(); ++k)
      add(i, documents[i].asked[k], exact.const_data_ptr<bool>()[k], chosen.const_data_ptr<bool>()[k]);
  }
}

class PairsRun {
 public:
  PairsRun(const LanguageModel& model, const RecallOptions& options, const TokensDone& done)
      : model_(model), options_(options), done_(done) {}

  void run(std::int64_t length, Recall& result) {
    const std::int64_t most = std::min(options_.most_pairs, (length - 1) / 4);
    const data::RecallDocuments documents(*model_.tokenizer, length, most, options_.seed);
    ByDistance by_distance;
    for (const std::int64_t pairs : documents.pair_counts())
      result.pairs.push_back({length, pairs, score(documents, length, pairs, by_distance)});
    for (const auto& [power, tally] : by_distance)
      result.distances.push_back({length, power, 2 * power - 1, tally.score()});
  }

 private:
  RecallScore score(const data::RecallDocuments& documents, std::int64_t length, std::int64_t pairs,
                    ByDistance& by_distance) {
    Tally tally;
    const std::int64_t at_once = std::max<std::int64_t>(1, options_.tokens_at_once / length);
    for (std::int64_t begin = 0; begin < options_.documents; begin += at_once) {
      std::vector<data::RecallDocument> some;
      for (std::int64_t i = begin; i < std::min(begin + at_once, options_.documents); ++i)
        some.push_back(documents.document(static_cast<std::uint64_t>(i), pairs));
      answer(*model_.model, some,
             [&](std::size_t i, const data::RecallDocument::Asked& asked, bool exact, bool chosen) {
               const std::int64_t number = begin + static_cast<std::int64_t>(i);
               tally.add(number, exact, chosen);
               const auto power = std::bit_floor(static_cast<std::uint64_t>(asked.distance));
               by_distance[static_cast<std::int64_t>(power)].add(number, exact, chosen);
             });
      if (done_) done_(std::ssize(some) * length);
    }
    return tally.score();
  }

  const LanguageModel& model_;
  const RecallOptions& options_;
  const TokensDone& done_;
};

RecallScore needles(const LanguageModel& model, const RecallOptions& options, std::int64_t length, double depth,
                    const TokensDone& done) {
  std::vector<std::vector<Continuation>> texts;
  std::vector<std::size_t> right;
  for (std::int64_t i = 0; i < options.needles; ++i) {
    const Needle needle = make_needle(*model.tokenizer, length, depth, options.seed, static_cast<std::uint64_t>(i));
    right.push_back(needle.right);
    std::vector<Continuation>& choices = texts.emplace_back();
    for (const char* word : kNeedleWords)
      choices.push_back(continuation_of(*model.tokenizer, needle.context, fmt::format(" {}", word)));
  }
  std::vector<std::vector<ScoredTokens>> groups;
  for (const std::vector<Continuation>& choices : texts) {
    std::vector<ScoredTokens>& group = groups.emplace_back();
    for (const Continuation& choice : choices) group.push_back(choice.scored());
  }
  const auto scores = likelihoods_of_groups(*model.model, groups, options.tokens_at_once);
  if (done) done(options.needles * length);
  Tally tally;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const auto best = std::ranges::max_element(scores[i], {}, &Likelihood::sum) - scores[i].begin();
    tally.add(static_cast<std::int64_t>(i), scores[i][right[i]].greedy, best == static_cast<std::ptrdiff_t>(right[i]));
  }
  return tally.score();
}

void check(const LanguageModel& model, const RecallOptions& options) {
  const std::int64_t most = longest_sequence(*model.model);
  for (const std::int64_t length : options.lengths) {
    if (length < kShortestRecall)
      throw Error(fmt::format("recall length is {}; it must be at least {}", length, kShortestRecall));
    if (length > most)
      throw Error(fmt::format("recall length is {}; the model was trained for {} tokens, another --beyond takes more",
                              length, most));
  }
  if (options.lengths.empty())
    throw Error(fmt::format("recall needs {} tokens; the model was trained for {}, another --beyond takes more",
                            kShortestRecall, most));
  if (options.documents < 1 || options.needles < 1)
    throw Error(fmt::format("documents are {} and needles {}; at least 1 of each is needed", options.documents,
                            options.needles));
}

}  // namespace

std::vector<std::int64_t> default_recall_lengths(const models::Lm& model) {
  std::vector<std::int64_t> lengths;
  const std::int64_t most = longest_sequence(model);
  for (const std::int64_t length : {256, 512, 1024, 2048})
    if (length <= most) lengths.push_back(length);
  return lengths;
}

double recall_tokens(const RecallOptions& options) {
  double tokens = 0.0;
  for (const std::int64_t length : options.lengths) {
    const std::int64_t most = std::max<std::int64_t>(4, std::min(options.most_pairs, (length - 1) / 4));
    const auto counts = std::bit_width(static_cast<std::uint64_t>(most - 1)) - 1;  // 4, 8 .. most
    tokens += static_cast<double>(length) *
              static_cast<double>(counts * options.documents + std::ssize(kDepths) * options.needles);
  }
  return tokens;
}

Recall recall(const LanguageModel& model, const RecallOptions& given, const TokensDone& done) {
  RecallOptions options = given;
  if (options.lengths.empty()) options.lengths = default_recall_lengths(*model.model);
  check(model, options);
  const torch::NoGradGuard no_gradient;
  const auto start = std::chrono::steady_clock::now();
  Recall result{.options = options};
  PairsRun pairs(model, options, done);
  for (const std::int64_t length : options.lengths) {
    pairs.run(length, result);
    for (const double depth : kDepths)
      result.needles.push_back({length, depth, needles(model, options, length, depth, done)});
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace mhla::tasks
