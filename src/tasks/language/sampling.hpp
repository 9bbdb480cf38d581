// The next token of a sequence from its logits. What is drawn depends on (seed, sequence, position) and the logits of
// that sequence alone: not on the batch, and not on how many threads there are.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <span>
#include <vector>

namespace mhla::tasks {

// Applied in this order; the defaults of all but temperature keep every token.
struct SamplingOptions {
  double repetition_penalty = 1.0;  // logits of tokens that came before: divided by it where positive, else multiplied
  double temperature = 1.0;         // logits are divided by it; 0: the most likely token
  std::int64_t top_k = 0;           // the k most likely tokens; 0: all
  double top_p = 1.0;               // the fewest most likely tokens that together have this probability
  double min_p = 0.0;               // tokens at least this many times as likely as the most likely one
  std::uint64_t seed = 0;

  bool operator==(const SamplingOptions&) const = default;
};

// Throws an Error that names the first option that cannot be.
void check(const SamplingOptions& options);

struct SequencePlace {
  std::uint64_t sequence = 0;  // its number
  std::uint64_t position = 0;  // of the token to draw
};

// `before`: ids of the sequence so far, for the penalty; others than those of the vocabulary do not count. Tokens whose
// logits are -infinity are never drawn. Throws an Error for NaN or +infinity, or where nothing is left to draw.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options, SequencePlace place,
                          std::span<const std::int64_t> before = {});

// The same for each row of logits, [B, V] on any device; `options` has one entry for all rows or one for each, `before`
// one for each or none. Returns ids, int64 [B] on the CPU.
at::Tensor sample_tokens(const at::Tensor& logits, std::span<const SamplingOptions> options,
                         std::span<const SequencePlace> places,
                         const std::vector<std::vector<std::int64_t>>& before = {});

}  // namespace mhla::tasks
