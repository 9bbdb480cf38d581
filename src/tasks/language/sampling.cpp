// Scores, candidates, and a draw from their distribution.
#include "tasks/language/sampling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "data/random_stream.hpp"
#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

struct Candidate {
  double score;  // a logarithm of its probability, but for a constant
  std::int64_t id;
};

bool likelier(const Candidate& a, const Candidate& b) {
  return a.score > b.score || (a.score == b.score && a.id < b.id);
}

// Tokens that can be drawn, with the penalty.
std::vector<Candidate> candidates_of(std::span<const float> logits, double penalty,
                                     std::span<const std::int64_t> before) {
  std::vector<double> scores(logits.begin(), logits.end());
  if (penalty != 1.0) {
    std::vector<std::int64_t> seen(before.begin(), before.end());
    std::ranges::sort(seen);
    const auto repeated = std::ranges::unique(seen);
    seen.erase(repeated.begin(), repeated.end());
    for (const std::int64_t id : seen)
      if (id >= 0 && id < std::ssize(scores)) {
        double& score = scores[static_cast<std::size_t>(id)];
        score = score > 0.0 ? score / penalty : score * penalty;
      }
  }
  std::vector<Candidate> candidates;
  candidates.reserve(scores.size());
  for (std::size_t id = 0; id < scores.size(); ++id) {
    if (std::isnan(scores[id]) || scores[id] == INFINITY)
      throw Error(fmt::format("logits hold {} for token {}; they must be numbers or -infinity", scores[id], id));
    if (scores[id] != -INFINITY) candidates.push_back({scores[id], static_cast<std::int64_t>(id)});
  }
  if (candidates.empty()) throw Error("logits are -infinity for every token; there is none to draw");
  return candidates;
}

double best_score(const std::vector<Candidate>& candidates) {
  return std::ranges::max(candidates, {}, &Candidate::score).score;
}

// Relative to a token of the score `best`.
double weight(const Candidate& candidate, double best) { return std::exp(candidate.score - best); }

double sum_of_weights(const std::vector<Candidate>& candidates, double best) {
  double sum = 0.0;
  for (const Candidate& candidate : candidates) sum += weight(candidate, best);
  return sum;
}

void keep_top_k(std::vector<Candidate>& candidates, std::int64_t k) {
  if (k == 0 || k >= std::ssize(candidates)) return;
  std::ranges::nth_element(candidates, candidates.begin() + k, likelier);
  candidates.resize(static_cast<std::size_t>(k));
  std::ranges::sort(candidates, likelier);
}

void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  if (top_p >= 1.0) return;
  const double best = best_score(candidates), enough = top_p * sum_of_weights(candidates, best);
  const auto less_likely = [](const Candidate& a, const Candidate& b) { return likelier(b, a); };
  std::vector<Candidate> kept;
  double sum = 0.0;
  for (std::ranges::make_heap(candidates, less_likely); !candidates.empty() && (kept.empty() || sum < enough);) {
    std::ranges::pop_heap(candidates, less_likely);
    kept.push_back(candidates.back());
    candidates.pop_back();
    sum += weight(kept.back(), best);
  }
  candidates = std::move(kept);
}

void keep_min_p(std::vector<Candidate>& candidates, double min_p) {
  if (min_p == 0.0) return;
  const double best = best_score(candidates);
  std::erase_if(candidates, [&](const Candidate& candidate) { return weight(candidate, best) < min_p; });
}

}  // namespace

void check(const SamplingOptions& options) {
  const auto refuse = [](const char* name, auto value, const char* right) {
    throw Error(fmt::format("{} is {}; it must be {}", name, value, right));
  };
  if (!(options.repetition_penalty > 0.0) || !std::isfinite(options.repetition_penalty))
    refuse("repetition_penalty", options.repetition_penalty, "more than 0");
  if (!(options.temperature >= 0.0) || !std::isfinite(options.temperature))
    refuse("temperature", options.temperature, "at least 0");
  if (options.top_k < 0) refuse("top_k", options.top_k, "at least 0");
  if (!(options.top_p > 0.0 && options.top_p <= 1.0)) refuse("top_p", options.top_p, "more than 0 and at most 1");
  if (!(options.min_p >= 0.0 && options.min_p <= 1.0)) refuse("min_p", options.min_p, "0 to 1");
}

std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, SequencePlace place,
                          std::span<const std::int64_t> before) {
  check(options);
  std::vector<Candidate> candidates = candidates_of(logits, options.repetition_penalty, before);
  if (options.temperature == 0.0 || options.top_k == 1) return std::ranges::min_element(candidates, likelier)->id;
  const double likeliest = best_score(candidates);
  for (Candidate& candidate : candidates) candidate.score = (candidate.score - likeliest) / options.temperature;
  keep_top_k(candidates, options.top_k);
  keep_top_p(candidates, options.top_p);
  keep_min_p(candidates, options.min_p);
  const double drawn = data::RandomStream({options.seed, place.sequence, place.position}).uniform();
  double left = drawn * sum_of_weights(candidates, 0.0);
  for (const Candidate& candidate : candidates) {
    left -= weight(candidate, 0.0);
    if (left < 0.0) return candidate.id;
  }
  return candidates.back().id;  // where rounding took the last one's share
}

at::Tensor sample_tokens(const at::Tensor& logits, std::span<const SamplingOptions> options,
                         std::span<const SequencePlace> places, const std::vector<std::vector<std::int64_t>>& before) {
  const auto rows = logits.dim() == 2 ? static_cast<std::size_t>(logits.size(0)) : 0;
  if (logits.dim() != 2 || places.size() != rows || (options.size() != 1 && options.size() != rows) ||
      (!before.empty() && before.size() != rows))
    throw Error(
        fmt::format("logits have {} axes and {} rows, options {}, places {} and before {}; it must be [B, V] and "
                    "one of each for a row",
                    logits.dim(), rows, options.size(), places.size(), before.size()));
  const at::Tensor values = logits.detach().to(at::kCPU, at::kFloat).contiguous();
  at::Tensor ids = at::empty({logits.size(0)}, at::kLong);
  const auto words = static_cast<std::size_t>(values.size(1));
  for (std::size_t row = 0; row < rows; ++row)
    ids.mutable_data_ptr<std::int64_t>()[row] =
        sample_token({values.const_data_ptr<float>() + row * words, words}, options[options.size() == 1 ? 0 : row],
                     places[row], before.empty() ? std::span<const std::int64_t>() : before[row]);
  return ids;
}

}  // namespace mhla::tasks
