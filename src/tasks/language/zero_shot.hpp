// Scores of a language model on questions, in the conventions of lm-evaluation-harness: the answer is the likeliest
// choice.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tasks/language/continuation.hpp"
#include "tasks/language/language_model.hpp"
#include "tasks/language/likelihood.hpp"
#include "tasks/language/task_prompts.hpp"

namespace mhla::tasks {

// A mean over questions; its error is the standard deviation / sqrt(questions).
struct Metric {
  double value = 0.0, error = 0.0;
};

struct ScoredChoice {
  double log_likelihood;
  bool greedy;
};

struct TaskScore {
  std::string task;
  std::int64_t questions = 0;
  std::int64_t shortened = 0;             // texts that lost their beginning, to fit into what the model takes
  Metric accuracy = {};                   // of a last word: of the greedy answer
  std::optional<Metric> normalised = {};  // accuracy of the likelihood divided by the characters of the answer
  std::optional<Metric> perplexity = {};  // of a last word: exp of minus the mean log-likelihood
  double chance = 0.0;                    // accuracy of guessing
  double seconds = 0.0;
  std::vector<std::vector<ScoredChoice>> answers = {};  // of each question, one for each choice
};

// Questions with their texts as tokens.
class TokenizedTask {
 public:
  // `most`: tokens that the model takes (continuation_of).
  TokenizedTask(const text::Tokenizer& tokenizer, const TaskKind& kind, std::vector<Question> questions,
                std::int64_t most);

  const char* name() const { return kind_->name; }
  std::int64_t tokens() const;
  TaskScore score(models::Lm& model, std::int64_t tokens_at_once = kTokensAtOnce,
                  const TokensDone& done = nullptr) const;

  // A line of JSON for each question: what was asked, and what the model makes of each choice.
  std::string answer_lines(const TaskScore& score) const;

  // As score() computes it from the log-likelihoods of all choices.
  TaskScore score_of(const std::vector<std::vector<Likelihood>>& likelihoods) const;

 private:
  const TaskKind* kind_;
  std::vector<Question> questions_;
  std::vector<std::vector<Continuation>> texts_;
};

struct ZeroShotOptions {
  std::filesystem::path files;          // a folder or an archive
  std::vector<std::string> tasks = {};  // none: all that are known
  std::int64_t limit = 0;               // the first questions of each; 0: all
  std::int64_t shots = 0;               // examples before each question of the tasks that have them
};

std::vector<TokenizedTask> open_tasks(const LanguageModel& model, const ZeroShotOptions& options);

}  // namespace mhla::tasks
