// How well a language model predicts text: loss and perplexity, and the loss by how much text comes before.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tasks/language/clustered_mean.hpp"
#include "tasks/language/likelihood.hpp"
#include "tasks/language/text_documents.hpp"

namespace mhla::tasks {

struct PerplexityOptions {
  // 0: every document once, from its beginning to its end. Otherwise in windows of so many tokens, each without what
  // came before it.
  std::int64_t context = 0;
  // From one window to the next; 0 is `context`: pieces that do not overlap. A window scores what the one before did
  // not, so that every token is scored once.
  std::int64_t stride = 0;
  std::int64_t tokens_at_once = kTokensAtOnce;
};

// Tokens that follow `first` to `last` others.
struct PositionLoss {
  std::int64_t first, last;
  MeanWithError loss;
};

struct Perplexity {
  MeanWithError loss;         // nats per token
  std::string clusters = {};  // over which its error is: "documents", or "stretches of 1,024 tokens" of few documents
  std::int64_t documents = 0, tokens = 0, words = 0, bytes = 0;  // without the tokens that begin documents
  std::vector<PositionLoss> positions = {};                      // last is a power of two
  double seconds = 0.0;

  double per_token() const;      // exp(loss)
  double per_word() const;       // exp(loss of all tokens / words)
  double bits_per_byte() const;  // loss of all tokens / bytes, in bits
  // Of the three: the relative error of the loss carried over. Bytes and words are taken as certain.
  double per_token_error() const, per_word_error() const, bits_per_byte_error() const;
};

Perplexity perplexity(models::Lm& model, const std::vector<TextDocument>& documents, const PerplexityOptions& options,
                      const TokensDone& done = nullptr);

}  // namespace mhla::tasks
