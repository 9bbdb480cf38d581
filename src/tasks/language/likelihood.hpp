// How likely a language model finds given tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "models/lm/lm.hpp"

namespace mhla::tasks {

// A sequence that begins with nothing before it. Its tokens from `from` on, at least 1, are scored.
struct ScoredTokens {
  std::span<const std::int64_t> tokens;
  std::int64_t from = 1;
};

struct Likelihood {
  std::vector<double> tokens;  // log-probability of each scored token given all before it
  bool greedy = true;          // each of them is the likeliest one

  double sum() const;
};

// Tokens that the model sees at once, over all sequences; longer sequences go through its state. Changes no result but
// for rounding.
inline constexpr std::int64_t kTokensAtOnce = 16384;

using TokensDone = std::function<void(std::int64_t tokens)>;  // how many more

// One for each sequence. Throws an Error where a score is not finite.
std::vector<Likelihood> likelihoods(models::Lm& model, std::span<const ScoredTokens> sequences,
                                    std::int64_t tokens_at_once = kTokensAtOnce, const TokensDone& done = nullptr);

// The same for groups of sequences that begin alike, such as the answers to one question: what the sequences of a group
// have in common goes through the model once, and each goes on from its state.
std::vector<std::vector<Likelihood>> likelihoods_of_groups(models::Lm& model,
                                                           std::span<const std::vector<ScoredTokens>> groups,
                                                           std::int64_t tokens_at_once = kTokensAtOnce,
                                                           const TokensDone& done = nullptr);

}  // namespace mhla::tasks
