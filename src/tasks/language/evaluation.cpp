// One part after the other.
#include "tasks/language/evaluation.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mhla/types.hpp"
#include "train/autocast.hpp"

namespace mhla::tasks {
namespace {

// What a part reports as done, for the whole.
TokensDone part_of(const LanguageProgress& progress, const std::string& phase, double total) {
  if (!progress) return nullptr;
  return [&progress, phase, total](std::int64_t tokens) { progress(phase, static_cast<double>(tokens), total); };
}

double inputs_of(const std::vector<TextDocument>& documents, const PerplexityOptions& options) {
  double tokens = 0.0;
  for (const TextDocument& document : documents) tokens += static_cast<double>(document.tokens.size());
  const bool overlap = options.stride > 0 && options.context > 0;
  return overlap ? tokens * static_cast<double>(options.context) / static_cast<double>(options.stride) : tokens;
}

}  // namespace

LanguageEvaluation evaluate_language(const LanguageModel& model, const LanguageEvaluationOptions& options,
                                     const LanguageProgress& progress) {
  if (options.data.empty() && !options.questions && !options.recall)
    throw Error("there is nothing to evaluate: no text, no questions, no recall");
  models::Lm& lm = *model.model;
  const train::Autocast autocast(lm.output_weight().device(), options.bf16);
  LanguageEvaluation evaluation{.model = model.name, .options = lm.options};
  std::vector<TokenizedTask> tasks;  // what is wrong with them is said before anything long
  if (options.questions) tasks = open_tasks(model, *options.questions);
  if (!options.data.empty()) {
    const std::vector<TextDocument> documents = text_documents(*model.tokenizer, options.data, options.most_documents);
    PerplexityOptions reading = options.perplexity;
    reading.tokens_at_once = options.tokens_at_once;
    evaluation.data = fmt::format("{}", fmt::join(options.data, ", "));
    evaluation.context = reading.context;
    evaluation.stride = reading.stride == 0 ? reading.context : reading.stride;
    evaluation.perplexity =
        perplexity(lm, documents, reading, part_of(progress, "perplexity", inputs_of(documents, reading)));
  }
  if (options.questions) evaluation.shots = options.questions->shots;
  for (const TokenizedTask& task : tasks) {
    evaluation.tasks.push_back(
        task.score(lm, options.tokens_at_once, part_of(progress, task.name(), static_cast<double>(task.tokens()))));
    if (options.keep_answers) evaluation.answers += task.answer_lines(evaluation.tasks.back());
  }
  if (options.recall) {
    RecallOptions asking = *options.recall;
    if (asking.lengths.empty()) asking.lengths = default_recall_lengths(lm);
    asking.tokens_at_once = options.tokens_at_once;
    evaluation.recall = recall(model, asking, part_of(progress, "recall", recall_tokens(asking)));
  }
  return evaluation;
}

}  // namespace mhla::tasks
