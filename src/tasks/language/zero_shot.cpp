// From questions to tokens, from likelihoods to scores.
#include "tasks/language/zero_shot.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>

#include "io/json.hpp"
#include "mhla/types.hpp"
#include "tasks/language/generation.hpp"

namespace mhla::tasks {
namespace {

Metric mean_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  double sum = 0.0, squares = 0.0;
  for (const double value : values) sum += value;
  const double mean = sum / count;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {.value = mean, .error = std::sqrt(squares / (count - 1.0) / count)};
}

// The first of the largest.
std::int64_t best(const std::vector<double>& values) {
  return std::distance(values.begin(), std::ranges::max_element(values));
}

std::vector<std::string> chosen_tasks(const TaskFiles& files, const ZeroShotOptions& options) {
  std::vector<std::string> names;
  names.reserve(options.tasks.size());
  for (const std::string& name : options.tasks) names.emplace_back(task_kind(name).name);
  if (names.empty())
    for (const TaskKind& kind : task_kinds())
      if (std::ranges::count(files.names(), kind.file) > 0) names.emplace_back(kind.name);
  if (names.empty())
    throw Error(fmt::format("{}: none of its files is a task that is known: {}", options.files.string(),
                            fmt::join(files.names(), ", ")));
  for (const std::string& name : names)
    if (std::ranges::count(files.names(), task_kind(name).file) == 0)
      throw Error(fmt::format("{}: there is no {}.jsonl for the task {}; there are {}", options.files.string(),
                              task_kind(name).file, name, fmt::join(files.names(), ", ")));
  return names;
}

}  // namespace

TokenizedTask::TokenizedTask(const text::Tokenizer& tokenizer, const TaskKind& kind, std::vector<Question> questions,
                             std::int64_t most)
    : kind_(&kind), questions_(std::move(questions)) {
  for (const Question& question : questions_) {
    std::vector<Continuation>& texts = texts_.emplace_back();
    try {
      for (const PossibleAnswer& choice : question.choices)
        texts.push_back(continuation_of(tokenizer, choice.context, choice.goes_on, most));
    } catch (const Error& error) {
      throw Error(fmt::format("{}: question {}: {}", kind.name, texts_.size(), error.what()));
    }
  }
}

std::int64_t TokenizedTask::tokens() const {
  std::int64_t tokens = 0;
  for (const auto& texts : texts_)
    for (const Continuation& text : texts) tokens += std::ssize(text.tokens) - 1;
  return tokens;
}

TaskScore TokenizedTask::score(models::Lm& model, std::int64_t tokens_at_once, const TokensDone& done) const {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::vector<ScoredTokens>> groups;
  for (const auto& texts : texts_) {
    std::vector<ScoredTokens>& group = groups.emplace_back();
    for (const Continuation& text : texts) group.push_back(text.scored());
  }
  TaskScore score;
  if (kind_->last_word) {  // nothing to share
    std::vector<ScoredTokens> all;
    for (const auto& group : groups) all.insert(all.end(), group.begin(), group.end());
    std::vector<std::vector<Likelihood>> results;
    for (Likelihood& likelihood : likelihoods(model, all, tokens_at_once, done))
      results.push_back({std::move(likelihood)});
    score = score_of(results);
  } else {
    score = score_of(likelihoods_of_groups(model, groups, tokens_at_once, done));
  }
  score.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return score;
}

TaskScore TokenizedTask::score_of(const std::vector<std::vector<Likelihood>>& likelihoods) const {
  TaskScore score{.task = kind_->name, .questions = std::ssize(questions_)};
  std::vector<double> right, right_normalised, log_likelihoods;
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    const Question& question = questions_[i];
    std::vector<ScoredChoice>& answers = score.answers.emplace_back();
    for (const Likelihood& likelihood : likelihoods[i]) answers.push_back({likelihood.sum(), likelihood.greedy});
    score.shortened += std::ranges::count(texts_[i], true, &Continuation::shortened);
    if (kind_->last_word) {
      right.push_back(answers[0].greedy ? 1.0 : 0.0);
      log_likelihoods.push_back(answers[0].log_likelihood);
      continue;
    }
    std::vector<double> sums, normalised;
    for (std::size_t k = 0; k < question.choices.size(); ++k) {
      sums.push_back(answers[k].log_likelihood);
      normalised.push_back(sums.back() / static_cast<double>(question.choices[k].letters));
    }
    right.push_back(best(sums) == question.right ? 1.0 : 0.0);
    right_normalised.push_back(best(normalised) == question.right ? 1.0 : 0.0);
    score.chance += 1.0 / static_cast<double>(question.choices.size()) / static_cast<double>(questions_.size());
  }
  score.accuracy = mean_of(right);
  if (kind_->normalised) score.normalised = mean_of(right_normalised);
  if (kind_->last_word) {
    const Metric mean = mean_of(log_likelihoods);
    score.perplexity = {.value = std::exp(-mean.value), .error = std::exp(-mean.value) * mean.error};
  }
  return score;
}

std::string TokenizedTask::answer_lines(const TaskScore& score) const {
  std::string lines;
  for (std::size_t i = 0; i < questions_.size(); ++i) {
    io::Json line = {{"task", kind_->name}, {"question", i}, {"right", questions_[i].right}};
    for (std::size_t k = 0; k < questions_[i].choices.size(); ++k) {
      const PossibleAnswer& choice = questions_[i].choices[k];
      const ScoredChoice& answer = score.answers[i][k];
      line["choices"].push_back({{"context", choice.context},
                                 {"continuation", choice.goes_on},
                                 {"log_likelihood", answer.log_likelihood},
                                 {"greedy", answer.greedy}});
    }
    lines += line.dump() + "\n";
  }
  return lines;
}

std::vector<TokenizedTask> open_tasks(const LanguageModel& model, const ZeroShotOptions& options) {
  const TaskFiles files(options.files);
  std::vector<TokenizedTask> tasks;
  for (const std::string& name : chosen_tasks(files, options)) {
    const TaskKind& kind = task_kind(name);
    std::vector<TaskItem> items = files.items(kind.file);
    if (options.limit > 0 && std::ssize(items) > options.limit) items.resize(static_cast<std::size_t>(options.limit));
    Shots shots;
    if (options.shots > 0 && kind.examples != nullptr) shots = {files.items(kind.examples), options.shots};
    tasks.emplace_back(*model.tokenizer, kind, questions_of(kind, items, shots), longest_sequence(*model.model));
  }
  return tasks;
}

}  // namespace mhla::tasks
