// Stop strings may begin in one token and end in another: text that may be the beginning of one waits.
#include "tasks/language/answer_text.hpp"

#include <algorithm>
#include <utility>

#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

// How many bytes at the end of `text` are the beginning of `stop`.
std::size_t begun(const std::string& text, const std::string& stop) {
  for (std::size_t count = std::min(text.size(), stop.size() - 1); count > 0; --count)
    if (text.compare(text.size() - count, count, stop, 0, count) == 0) return count;
  return 0;
}

}  // namespace

AnswerText::AnswerText(const text::Tokenizer& tokenizer, std::vector<std::string> stop)
    : text_(tokenizer), stop_(std::move(stop)) {
  if (std::ranges::any_of(stop_, &std::string::empty))
    throw Error("a stop string is empty; it must have at least one character");
}

std::string AnswerText::add(text::Token token) { return stopped_ ? "" : certain(text_.add(token), false); }

std::string AnswerText::finish() { return stopped_ ? "" : certain(text_.finish(), true); }

std::string AnswerText::certain(const std::string& more, bool last) {
  held_ += more;
  std::size_t end = std::string::npos, waiting = 0;
  for (const std::string& stop : stop_) {
    end = std::min(end, held_.find(stop));
    waiting = std::max(waiting, begun(held_, stop));
  }
  stopped_ = end != std::string::npos;
  if (!stopped_) end = held_.size() - (last ? 0 : waiting);
  std::string result = held_.substr(0, end);
  held_.erase(0, end);
  return result;
}

}  // namespace mhla::tasks
