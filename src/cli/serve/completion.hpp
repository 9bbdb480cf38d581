// One request to /v1/completions on its way: its answers as they are made, and what is sent of them.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/serve/completion_request.hpp"
#include "tasks/language/scheduler.hpp"

namespace mhla::cli {

class Completion {
 public:
  // Hands the request to the scheduler and waits for the first part of an answer. Throws an ApiError where it is not
  // taken, or where an answer failed.
  Completion(CompletionRequest asked, const tasks::LanguageModel& model, tasks::Scheduler& scheduler);
  ~Completion() { parts_->cancel(); }
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;

  bool streams() const { return asked_.stream; }
  std::int64_t prompt_tokens() const { return asked_.prompt_tokens(); }
  std::int64_t tokens() const { return parts_->tokens(); }

  // What can be sent now; it waits at most this long. After the last, sent() is true.
  std::string next(std::chrono::milliseconds at_most);
  bool sent() const { return sent_; }

 private:
  struct Answer {
    std::string text, finish;
  };

  void begin();
  std::string events(const std::vector<tasks::AnswerPart>& parts);
  std::string event(std::size_t answer, const std::string& text, const io::Json& finish) const;
  void collect(const std::vector<tasks::AnswerPart>& parts);
  std::string whole() const;
  io::Json head() const;  // what every object of this completion begins with
  io::Json usage() const;

  const CompletionRequest asked_;
  const std::string id_, model_;
  const std::int64_t created_;
  std::shared_ptr<tasks::AnswerParts> parts_;
  std::vector<tasks::AnswerPart> first_;
  std::vector<Answer> answers_;
  bool begun_ = false, sent_ = false;
};

std::string to_text(const io::Json& json);  // what is not UTF-8 is replaced

}  // namespace mhla::cli
