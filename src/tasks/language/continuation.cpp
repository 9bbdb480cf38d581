// Where a continuation begins.
#include "tasks/language/continuation.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mhla/types.hpp"
#include "tasks/language/generation.hpp"

namespace mhla::tasks {

Continuation continuation_of(const text::Tokenizer& tokenizer, std::string_view context, std::string_view goes_on,
                             std::int64_t most) {
  const std::string whole = std::string(context) + std::string(goes_on);
  const std::size_t last = context.find_last_not_of(" \t\r\n\v\f");
  context = context.substr(0, last == std::string_view::npos ? 0 : last + 1);
  const std::vector<text::Token> all = tokenizer.encode(whole), before = tokenizer.encode(context);
  if (all.size() <= before.size())
    throw Error(fmt::format("the continuation \"{}\" of \"{}\" has no token of its own", goes_on, context));
  Continuation result{.tokens = {begin_token(tokenizer)}};
  result.tokens.insert(result.tokens.end(), all.begin(), all.end());
  result.from = 1 + std::ssize(before);
  const std::int64_t own = std::ssize(result.tokens) - result.from;
  if (own > most) throw Error(fmt::format("a continuation has {} tokens; the model takes {}", own, most));
  if (const std::int64_t over = std::ssize(result.tokens) - 1 - most; over > 0) {
    result.tokens.erase(result.tokens.begin(), result.tokens.begin() + over);
    result.from -= over;
    result.shortened = true;
  }
  return result;
}

}  // namespace mhla::tasks
