// Short sequences are packed as documents of one row, so that nothing is filled up; long ones stream.
#include "tasks/language/likelihood.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kLogitsAtOnce = std::int64_t{1} << 25;

std::int64_t inputs_of(const ScoredTokens& sequence) { return std::ssize(sequence.tokens) - 1; }

void check_sequence(const models::Lm& model, const ScoredTokens& sequence) {
  if (sequence.from < 1 || sequence.from >= std::ssize(sequence.tokens))
    throw Error(fmt::format("from is {} of {} tokens; it may be 1 to one less than their number", sequence.from,
                            sequence.tokens.size()));
  const std::int64_t words = model.options.vocabulary;
  for (const std::int64_t token : sequence.tokens)
    if (token < 0 || token >= words)
      throw Error(fmt::format("token {} is not of the model's vocabulary, 0 to {}", token, words - 1));
}

at::Tensor tensor_of(std::span<const std::int64_t> values) {
  at::Tensor tensor = at::empty({std::ssize(values)}, at::kLong);
  std::ranges::copy(values, tensor.mutable_data_ptr<std::int64_t>());
  return tensor;
}

// Scores of `labels` after what is in `hidden`, [N, C], are added to `result`, one label after another.
class Scores {
 public:
  Scores(models::Lm& model, const at::Tensor& hidden, const at::Tensor& labels) {
    const std::int64_t count = labels.size(0);
    log_likelihood_ = at::empty({count}, at::kDouble), likeliest_ = at::empty({count}, at::kBool);
    const at::Tensor on_device = labels.to(hidden.device());
    const std::int64_t chunk = std::max<std::int64_t>(1, kLogitsAtOnce / model.options.vocabulary);
    for (std::int64_t begin = 0; begin < count; begin += chunk) {
      const std::int64_t size = std::min(chunk, count - begin);
      at::Tensor logits = model.logits(hidden.narrow(0, begin, size));
      if (logits.scalar_type() != at::kDouble) logits = logits.to(at::kFloat);
      const at::Tensor label = on_device.narrow(0, begin, size);
      const at::Tensor own = logits.gather(1, label.unsqueeze(1)).squeeze(1);
      log_likelihood_.narrow(0, begin, size).copy_(own - logits.logsumexp(1));
      likeliest_.narrow(0, begin, size).copy_(logits.argmax(1) == label);
    }
    if (!log_likelihood_.isfinite().all().item<bool>())
      throw Error("the model's scores are not finite; its weights are too large or damaged");
  }

  void add_to(Likelihood& result, std::int64_t first, std::int64_t count) const {
    const double* const log_likelihood = log_likelihood_.const_data_ptr<double>() + first;
    const bool* const likeliest = likeliest_.const_data_ptr<bool>() + first;
    result.tokens.insert(result.tokens.end(), log_likelihood, log_likelihood + count);
    result.greedy = result.greedy && std::all_of(likeliest, likeliest + count, std::identity());
  }

 private:
  at::Tensor log_likelihood_, likeliest_;
};

std::vector<Likelihood> packed(models::Lm& model, std::span<const ScoredTokens> sequences) {
  std::vector<std::int64_t> ids, places, labels;
  models::Lm::Documents documents = {0};
  for (const ScoredTokens& sequence : sequences) {
    const std::int64_t begin = std::ssize(ids);
    ids.insert(ids.end(), sequence.tokens.begin(), sequence.tokens.end() - 1);
    documents.push_back(std::ssize(ids));
    for (std::int64_t i = sequence.from; i < std::ssize(sequence.tokens); ++i) {
      places.push_back(begin + i - 1);
      labels.push_back(sequence.tokens[static_cast<std::size_t>(i)]);
    }
  }
  if (sequences.size() == 1) documents.clear();
  const at::Tensor hidden = model.hidden(tensor_of(ids).unsqueeze(0), documents).squeeze(0);
  const Scores scores(model, hidden.index_select(0, tensor_of(places).to(hidden.device())), tensor_of(labels));
  std::vector<Likelihood> results(sequences.size());
  std::int64_t first = 0;
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    const std::int64_t count = std::ssize(sequences[i].tokens) - sequences[i].from;
    scores.add_to(results[i], first, count);
    first += count;
  }
  return results;
}

Likelihood streamed(models::Lm& model, const ScoredTokens& sequence, std::int64_t tokens_at_once,
                    const TokensDone& done) {
  const at::Tensor tokens = tensor_of(sequence.tokens);
  const std::int64_t inputs = inputs_of(sequence);
  models::LmState state = model.new_state(1, inputs);
  Likelihood result;
  for (std::int64_t begin = 0; begin < inputs; begin += tokens_at_once) {
    const std::int64_t end = std::min(inputs, begin + tokens_at_once);
    const at::Tensor hidden = model.extend(state, tokens.slice(0, begin, end).unsqueeze(0)).squeeze(0);
    const std::int64_t first = std::max(begin, sequence.from - 1);
    if (first < end)
      Scores(model, hidden.slice(0, first - begin), tokens.slice(0, first + 1, end + 1)).add_to(result, 0, end - first);
    if (done) done(end - begin);
  }
  return result;
}

// How many tokens all sequences of a group begin with, before the first that any of them needs the output of.
std::int64_t shared_tokens(const std::vector<ScoredTokens>& group) {
  std::int64_t shared = group.empty() ? 0 : group.front().from - 1;
  for (const ScoredTokens& sequence : group) {
    const auto differ = std::ranges::mismatch(group.front().tokens, sequence.tokens);
    shared = std::min({shared, sequence.from - 1, std::distance(group.front().tokens.begin(), differ.in1)});
  }
  return shared;
}

// Groups with as many tokens in common, which go through the model together.
class GroupBatch {
 public:
  GroupBatch(std::span<const std::vector<ScoredTokens>> groups, std::int64_t shared)
      : groups_(groups), shared_(shared) {}

  bool empty() const { return members_.empty(); }
  void add(std::size_t group) {
    members_.push_back(group);
    rows_ += std::ssize(groups_[group]);
    longest_ = std::max(longest_, longest_of(group));
  }
  std::int64_t tokens_with(std::size_t group) const {
    return (std::ssize(members_) + 1) * shared_ +
           (rows_ + std::ssize(groups_[group])) * std::max(longest_, longest_of(group));
  }

  void score(models::Lm& model, std::int64_t tokens_at_once, std::vector<std::vector<Likelihood>>& results) const {
    models::LmState state = after_common_tokens(model, tokens_at_once);
    at::Tensor ids = at::zeros({rows_, longest_}, at::kLong);
    std::vector<std::int64_t> places, labels;
    std::int64_t row = 0;
    for (const std::size_t member : members_)
      for (const ScoredTokens& sequence : groups_[member]) {
        const auto tokens = sequence.tokens.subspan(static_cast<std::size_t>(shared_));
        std::ranges::copy(tokens.first(tokens.size() - 1), ids.mutable_data_ptr<std::int64_t>() + row * longest_);
        for (std::int64_t i = sequence.from - shared_; i < std::ssize(tokens); ++i) {
          places.push_back(row * longest_ + i - 1);
          labels.push_back(tokens[static_cast<std::size_t>(i)]);
        }
        ++row;
      }
    const at::Tensor hidden = model.extend(state, ids).flatten(0, 1);
    const Scores scores(model, hidden.index_select(0, tensor_of(places).to(hidden.device())), tensor_of(labels));
    std::int64_t first = 0;
    for (const std::size_t member : members_)
      for (const ScoredTokens& sequence : groups_[member]) {
        const std::int64_t count = std::ssize(sequence.tokens) - sequence.from;
        scores.add_to(results[member].emplace_back(), first, count);
        first += count;
      }
  }

  std::int64_t inputs() const {
    std::int64_t sum = 0;
    for (const std::size_t member : members_)
      for (const ScoredTokens& sequence : groups_[member]) sum += inputs_of(sequence);
    return sum;
  }

 private:
  std::int64_t longest_of(std::size_t group) const {
    std::int64_t longest = 0;
    for (const ScoredTokens& sequence : groups_[group]) longest = std::max(longest, inputs_of(sequence) - shared_);
    return longest;
  }

  // A row for each sequence.
  models::LmState after_common_tokens(models::Lm& model, std::int64_t tokens_at_once) const {
    models::LmState state = model.new_state(std::ssize(members_), shared_ + longest_);
    std::vector<at::Tensor> common;
    std::vector<std::int64_t> rows;
    for (const std::size_t member : members_) {
      common.push_back(tensor_of(groups_[member].front().tokens.first(static_cast<std::size_t>(shared_))));
      rows.insert(rows.end(), groups_[member].size(), std::ssize(common) - 1);
    }
    const at::Tensor ids = at::stack(common);
    for (std::int64_t begin = 0; begin < shared_; begin += tokens_at_once)
      model.extend(state, ids.slice(1, begin, begin + tokens_at_once));
    return state.rows(rows);
  }

  std::span<const std::vector<ScoredTokens>> groups_;
  std::int64_t shared_, rows_ = 0, longest_ = 0;
  std::vector<std::size_t> members_;
};

void check_at_once(std::int64_t tokens_at_once) {
  if (tokens_at_once < 1) throw Error(fmt::format("tokens_at_once is {}; it must be at least 1", tokens_at_once));
}

}  // namespace

double Likelihood::sum() const { return std::accumulate(tokens.begin(), tokens.end(), 0.0); }

std::vector<Likelihood> likelihoods(models::Lm& model, std::span<const ScoredTokens> sequences,
                                    std::int64_t tokens_at_once, const TokensDone& done) {
  check_at_once(tokens_at_once);
  for (const ScoredTokens& sequence : sequences) check_sequence(model, sequence);
  const torch::NoGradGuard no_gradient;
  std::vector<Likelihood> results;
  for (std::size_t begin = 0, end = 0; begin < sequences.size(); begin = end) {
    std::int64_t tokens = 0;
    while (end < sequences.size() && tokens + inputs_of(sequences[end]) <= tokens_at_once)
      tokens += inputs_of(sequences[end++]);
    if (end == begin) {
      results.push_back(streamed(model, sequences[end++], tokens_at_once, done));
    } else {
      std::ranges::move(packed(model, sequences.subspan(begin, end - begin)), std::back_inserter(results));
      if (done) done(tokens);
    }
  }
  return results;
}

std::vector<std::vector<Likelihood>> likelihoods_of_groups(models::Lm& model,
                                                           std::span<const std::vector<ScoredTokens>> groups,
                                                           std::int64_t tokens_at_once, const TokensDone& done) {
  check_at_once(tokens_at_once);
  const torch::NoGradGuard no_gradient;
  std::map<std::int64_t, std::vector<std::size_t>> by_shared;
  for (std::size_t i = 0; i < groups.size(); ++i) {
    for (const ScoredTokens& sequence : groups[i]) check_sequence(model, sequence);
    by_shared[shared_tokens(groups[i])].push_back(i);
  }
  std::vector<std::vector<Likelihood>> results(groups.size());
  for (const auto& [shared, members] : by_shared) {
    if (shared == 0) {
      for (const std::size_t member : members)
        results[member] = likelihoods(model, groups[member], tokens_at_once, done);
      continue;
    }
    GroupBatch batch(groups, shared);
    const auto flush = [&] {
      if (batch.empty()) return;
      batch.score(model, tokens_at_once, results);
      if (done) done(batch.inputs());
      batch = GroupBatch(groups, shared);
    };
    for (const std::size_t member : members) {
      if (batch.tokens_with(member) > tokens_at_once) flush();
      batch.add(member);
    }
    flush();
  }
  return results;
}

}  // namespace mhla::tasks
