// Sequences of which each has its prompt in a row of a state, on their way to an answer.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tasks/language/answer_text.hpp"
#include "tasks/language/generation.hpp"

namespace mhla::tasks {

// Tokens of a sequence so far.
class SequenceTokens {
 public:
  explicit SequenceTokens(std::int64_t vocabulary) : known_(static_cast<std::size_t>(vocabulary)) {}

  void add(text::Token token);
  void add(std::span<const text::Token> tokens) {
    for (const text::Token token : tokens) add(token);
  }
  std::uint64_t count() const { return count_; }
  std::span<const std::int64_t> different() const { return different_; }  // each once: what sampling looks at

 private:
  std::vector<bool> known_;
  std::vector<std::int64_t> different_;
  std::uint64_t count_ = 0;
};

class Answering {
 public:
  Answering(const LanguageModel& model, const GenerationRequest& request, SequenceTokens before);

  // Draws the next token; false: the answer has ended.
  bool draw(std::span<const float> logits);
  void interrupt() { end(AnswerEnd::interrupted); }

  text::Token last() const { return answer_.tokens.back(); }
  std::string fresh() { return std::exchange(fresh_, {}); }  // text since the last call
  bool ended() const { return ended_; }
  Answer& answer() { return answer_; }

 private:
  void end(AnswerEnd why);

  const LanguageModel& model_;
  const GenerationRequest& request_;
  SequenceTokens tokens_;
  AnswerText text_;
  Answer answer_;
  std::string fresh_;
  bool ended_ = false;
};

// Until all have ended. logits: after the last token of each row, [B, vocabulary]. Rows whose answers have ended leave
// the state, but for the last.
void answer_all(const LanguageModel& model, models::LmState& state, at::Tensor logits, std::span<Answering> rows,
                const GenerationWatch& watch, GenerationTimes* times);

}  // namespace mhla::tasks
