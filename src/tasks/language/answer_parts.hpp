// Answers on their way from the thread that makes them to the one that sends them: several answers of one request, part
// by part. Without torch, so that ThreadSanitizer can watch.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tasks/language/answer_text.hpp"
#include "text/tokenizer.hpp"

namespace mhla::tasks {

// stop: the end token or a stop string; length: as many tokens as were asked for; abort: the scheduler stopped, or
// nobody listens; error: something went wrong.
enum class AnswerFinish : std::uint8_t { stop, length, abort, error };
std::string_view name(AnswerFinish value);

// Of one answer, called by the scheduler's thread.
class AnswerListener {
 public:
  virtual ~AnswerListener() = default;
  virtual bool take(text::Token token) = 0;  // false: the answer ends here
  virtual void end(AnswerFinish finish, const std::string& error) = 0;
  virtual bool gone() const = 0;  // nobody wants it any more
};

struct AnswerPart {
  std::size_t answer = 0;
  std::string text{};
  std::optional<AnswerFinish> finish{};  // of its last part
  std::string error{};
};

class AnswerParts {
 public:
  AnswerParts(const text::Tokenizer& tokenizer, std::size_t answers, const std::vector<std::string>& stop);

  // For the scheduler. The parts outlive it as long as it holds this.
  static std::shared_ptr<AnswerListener> listener(const std::shared_ptr<AnswerParts>& parts, std::size_t answer);

  // For the sender: parts since the last call, in their order; it waits this long for the first.
  std::vector<AnswerPart> wait(std::chrono::milliseconds at_most);
  bool finished() const;        // all parts of all answers were taken
  std::int64_t tokens() const;  // drawn for all answers so far
  void cancel() { gone_ = true; }

 private:
  class Listener;
  bool take(std::size_t answer, text::Token token);
  void end(std::size_t answer, AnswerFinish finish, const std::string& error);

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<AnswerText> texts_;
  std::vector<AnswerPart> parts_;
  std::size_t unfinished_;
  std::int64_t tokens_ = 0;
  std::atomic<bool> gone_ = false;
};

}  // namespace mhla::tasks
