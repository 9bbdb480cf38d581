// The tokens of a text that goes on from another, as lm-evaluation-harness cuts them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/language/likelihood.hpp"
#include "text/tokenizer.hpp"

namespace mhla::tasks {

struct Continuation {
  std::vector<std::int64_t> tokens;  // the one that begins a text, the context, what goes on
  std::int64_t from = 1;             // the first token of what goes on
  bool shortened = false;            // the context lost tokens at its beginning

  ScoredTokens scored() const { return {tokens, from}; }
};

inline constexpr std::int64_t kAnyLength = std::numeric_limits<std::int64_t>::max();

// White space at the end of the context belongs to what goes on. Both are encoded together and cut where the context
// alone would end. `most`: tokens that the model takes; the beginning of the context is left out where there are more.
// Throws an Error where nothing goes on.
Continuation continuation_of(const text::Tokenizer& tokenizer, std::string_view context, std::string_view goes_on,
                             std::int64_t most = kAnyLength);

}  // namespace mhla::tasks
