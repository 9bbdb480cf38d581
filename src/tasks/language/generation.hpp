// Answers of a language model: prompts of different lengths go on together, token by token. What is drawn for a request
// depends on that request alone, not on the others.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/lm/lm_state.hpp"
#include "tasks/language/language_model.hpp"
#include "tasks/language/sampling.hpp"

namespace mhla::tasks {

struct GenerationRequest {
  std::vector<text::Token> prompt{};  // prompt_tokens() of a text
  std::int64_t tokens = 100;          // of the answer, at most
  SamplingOptions sampling{};
  std::uint64_t sequence = 0;       // a draw depends on (sampling.seed, sequence, position)
  std::vector<std::string> stop{};  // the answer ends before the first of these
  bool past_end = false;            // the end token does not end the answer
};

enum class AnswerEnd : std::uint8_t { length, stop, end_token, interrupted };
std::string_view name(AnswerEnd value);

struct Answer {
  std::vector<text::Token> tokens;  // without the end token; with those of a stop string
  std::string text;
  AnswerEnd end = AnswerEnd::length;
};

// Told how things go. Where one returns false, all answers end.
struct GenerationWatch {
  std::function<bool(std::int64_t tokens)> read{};                          // so many more of the prompts
  std::function<bool(std::size_t request, const std::string& text)> say{};  // as it becomes certain: whole characters
};

// What answers cost.
struct GenerationTimes {
  std::int64_t prompt_tokens = 0;
  double prompt_seconds = 0.0;
  std::int64_t answer_tokens = 0;
  std::vector<double> step_seconds{};      // one token of every sequence that still goes on
  std::vector<std::size_t> state_bytes{};  // after 1, 1 + kEvery, ... steps
  static constexpr std::size_t kEvery = 1000;

  void add_prompt(std::size_t tokens, double seconds) {
    prompt_tokens += static_cast<std::int64_t>(tokens);
    prompt_seconds += seconds;
  }
  void add_step(std::size_t tokens, double seconds, std::size_t bytes) {
    answer_tokens += static_cast<std::int64_t>(tokens);
    if (step_seconds.size() % kEvery == 0) state_bytes.push_back(bytes);
    step_seconds.push_back(seconds);
  }
};

// As documents begin in training: the token that begins a text, then the text. Throws an Error where it is not UTF-8.
std::vector<text::Token> prompt_tokens(const text::Tokenizer& tokenizer, std::string_view text);

// The token that begins a text; an Error for a tokenizer that has none.
text::Token begin_token(const text::Tokenizer& tokenizer);

// How many tokens a sequence may have; the largest number where there is no limit.
std::int64_t longest_sequence(const models::Lm& model);

// Throws an Error that names the first thing that cannot be, `seen` being tokens of the sequence before the prompt.
void check(const LanguageModel& model, const GenerationRequest& request, std::int64_t seen = 0);

// The state of one row goes on with these tokens, in pieces that bound the memory. Returns the logits after the last,
// [1, vocabulary]; nothing where the watch ended it.
at::Tensor read_tokens(models::Lm& model, models::LmState& state, std::span<const text::Token> tokens,
                       const GenerationWatch& watch = {});

// One answer for each request. All are checked before the first begins.
std::vector<Answer> generate(const LanguageModel& model, std::span<const GenerationRequest> requests,
                             const GenerationWatch& watch = {}, GenerationTimes* times = nullptr);

}  // namespace mhla::tasks
