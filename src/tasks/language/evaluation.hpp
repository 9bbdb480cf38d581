// The evaluation of a language model: text, questions, recall; each where asked for.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tasks/language/perplexity.hpp"
#include "tasks/language/recall.hpp"
#include "tasks/language/zero_shot.hpp"

namespace mhla::tasks {

struct LanguageEvaluationOptions {
  std::vector<std::string> data = {};  // text to predict, or none
  std::int64_t most_documents = 0;     // 0: all
  PerplexityOptions perplexity;
  std::optional<ZeroShotOptions> questions;
  bool keep_answers = false;  // to questions
  std::optional<RecallOptions> recall;
  std::int64_t tokens_at_once = kTokensAtOnce;
  bool bf16 = false;
};

struct LanguageEvaluation {
  std::string model, data = {};
  models::LmOptions options = {};
  std::int64_t context = 0, stride = 0;  // of perplexity
  std::int64_t shots = 0;
  std::optional<Perplexity> perplexity = {};
  std::vector<TaskScore> tasks = {};
  std::string answers = {};  // JSON lines, if kept
  std::optional<Recall> recall = {};
};

// `progress` is told what is done now, and how many tokens of how many.
using LanguageProgress = std::function<void(const std::string& phase, double done, double total)>;
LanguageEvaluation evaluate_language(const LanguageModel& model, const LanguageEvaluationOptions& options,
                                     const LanguageProgress& progress = nullptr);

}  // namespace mhla::tasks
