// Text, JSON and page of the same tables.
#include "tasks/language/evaluation_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "report/html.hpp"
#include "report/line_chart.hpp"
#include "report/text.hpp"
#include "tasks/language/evaluation_tables.hpp"

namespace mhla::tasks {
namespace {

std::string count_of(std::int64_t count) { return report::grouped(static_cast<double>(count)); }

std::string text_of(const EvaluationTable& table) { return report::table(table.header, table.rows); }

std::string model_line(const LanguageEvaluation& evaluation) {
  const models::LmOptions& options = evaluation.options;
  std::string line = fmt::format("{}: attention {}", evaluation.model, fmt::join(options.attention, " "));
  if (std::ranges::count(options.attention, "mhla") > 0)
    line += fmt::format(", {} blocks of {} tokens, beyond them {}", options.blocks, options.block_size, options.beyond);
  return line;
}

std::string how(const LanguageEvaluation& evaluation) {
  if (evaluation.context == 0) return "whole documents";
  if (evaluation.stride == evaluation.context)
    return fmt::format("in pieces of {} tokens", count_of(evaluation.context));
  return fmt::format("in windows of {} tokens, {} apart", count_of(evaluation.context), count_of(evaluation.stride));
}

std::string data_line(const LanguageEvaluation& evaluation) {
  const Perplexity& result = *evaluation.perplexity;
  return fmt::format("{}, {}: {} document{}, {} tokens ({} tokens/s); errors over {} {}", evaluation.data,
                     how(evaluation), count_of(result.documents), result.documents == 1 ? "" : "s",
                     count_of(result.tokens), report::three_digits(static_cast<double>(result.tokens) / result.seconds),
                     count_of(result.loss.clusters), result.clusters);
}

std::vector<std::string> notes_of(const LanguageEvaluation& evaluation) {
  std::vector<std::string> notes;
  for (const TaskScore& task : evaluation.tasks)
    if (task.shortened > 0)
      notes.push_back(fmt::format("{}: {} texts are longer than what the model takes; their beginnings are left out",
                                  task.task, count_of(task.shortened)));
  return notes;
}

io::Json number(double value) { return std::isfinite(value) ? io::Json(value) : io::Json(nullptr); }

io::Json mean_json(const MeanWithError& mean) {
  return {{"mean", number(mean.mean)}, {"error", number(mean.error)}, {"count", mean.values}};
}
io::Json metric_json(const Metric& metric) {
  return {{"value", number(metric.value)}, {"error", number(metric.error)}};
}

io::Json perplexity_json(const LanguageEvaluation& evaluation) {
  const Perplexity& result = *evaluation.perplexity;
  io::Json json = {{"data", evaluation.data},
                   {"context", evaluation.context},
                   {"stride", evaluation.stride},
                   {"documents", result.documents},
                   {"tokens", result.tokens},
                   {"words", result.words},
                   {"bytes", result.bytes},
                   {"loss", number(result.loss.mean)},
                   {"loss_error", number(result.loss.error)},
                   {"error_over", result.clusters},
                   {"clusters", result.loss.clusters},
                   {"perplexity", number(result.per_token())},
                   {"perplexity_error", number(result.per_token_error())},
                   {"word_perplexity", number(result.per_word())},
                   {"word_perplexity_error", number(result.per_word_error())},
                   {"bits_per_byte", number(result.bits_per_byte())},
                   {"bits_per_byte_error", number(result.bits_per_byte_error())},
                   {"seconds", result.seconds},
                   {"positions", io::Json::array()}};
  for (const PositionLoss& position : result.positions)
    json["positions"].push_back({{"first", position.first},
                                 {"last", position.last},
                                 {"tokens", position.loss.values},
                                 {"loss", number(position.loss.mean)},
                                 {"loss_error", number(position.loss.error)}});
  return json;
}

io::Json task_json(const TaskScore& task) {
  io::Json json = {{"task", task.task},
                   {"questions", task.questions},
                   {"acc", metric_json(task.accuracy)},
                   {"seconds", task.seconds},
                   {"shortened", task.shortened}};
  if (!task.perplexity) json["chance"] = task.chance;
  if (task.normalised) json["acc_norm"] = metric_json(*task.normalised);
  if (task.perplexity) json["perplexity"] = metric_json(*task.perplexity);
  return json;
}

io::Json score_json(const RecallScore& score, io::Json json) {
  json["exact"] = mean_json(score.exact);
  json["chosen"] = mean_json(score.chosen);
  return json;
}

io::Json recall_json(const Recall& recall) {
  io::Json json = {{"seed", recall.options.seed},
                   {"documents", recall.options.documents},
                   {"needles_each", recall.options.needles},
                   {"seconds", recall.seconds},
                   {"pairs", io::Json::array()},
                   {"distances", io::Json::array()},
                   {"needles", io::Json::array()}};
  for (const PairsScore& row : recall.pairs)
    json["pairs"].push_back(
        score_json(row.score, {{"length", row.length}, {"pairs", row.pairs}, {"chance", row.chance()}}));
  for (const DistanceScore& row : recall.distances)
    json["distances"].push_back(
        score_json(row.score, {{"length", row.length}, {"first", row.first}, {"last", row.last}}));
  for (const NeedleScore& row : recall.needles)
    json["needles"].push_back(score_json(
        row.score,
        {{"length", row.length}, {"depth", row.depth}, {"chance", 1.0 / static_cast<double>(kNeedleChoices)}}));
  return json;
}

std::string position_chart(const Perplexity& perplexity) {
  report::LineChart chart{.x_label = "tokens before", .y_label = "nats per token", .x_log = true};
  chart.y_from_zero = false;
  report::Series series{.label = "loss"};
  for (const PositionLoss& position : perplexity.positions) {
    series.x.push_back(static_cast<double>(position.last));
    series.y.push_back(position.loss.mean);
  }
  chart.series.push_back(series);
  return chart.svg();
}

std::string recall_chart(const Recall& recall) {
  report::LineChart chart{.x_label = "pairs", .y_label = "values that are exact, %", .x_log = true};
  std::map<std::int64_t, report::Series> by_length;
  for (const PairsScore& row : recall.pairs) {
    report::Series& series = by_length[row.length];
    series.label = fmt::format("{} tokens", count_of(row.length));
    series.x.push_back(static_cast<double>(row.pairs));
    series.y.push_back(100.0 * row.score.exact.mean);
  }
  for (auto& item : by_length) chart.series.push_back(std::move(item.second));
  return chart.svg();
}

void add_table(report::html::Report& page, const EvaluationTable& table) { page.table(table.header, table.rows); }

void add_perplexity(report::html::Report& page, const LanguageEvaluation& evaluation) {
  const Perplexity& result = *evaluation.perplexity;
  page.key_figures({{report::three_digits(result.per_token()), "perplexity per token"},
                    {report::three_digits(result.per_word()), "perplexity per word"},
                    {fmt::format("{:.3f}", result.bits_per_byte()), "bits per byte"},
                    {count_of(result.tokens), "tokens"}});
  page.section("Text");
  add_table(page, perplexity_table(result));
  page.note(data_line(evaluation) + ". ±: standard error.");
  page.section("By what comes before");
  page.chart(position_chart(result), "Loss of tokens that follow more than half as many tokens and at most so many.");
  add_table(page, position_table(result));
}

void add_tasks(report::html::Report& page, const LanguageEvaluation& evaluation) {
  page.section("Questions");
  add_table(page, task_table(evaluation.tasks));
  page.note(
      "acc: the likeliest choice is right; acc_norm: the likeliest by its characters; of last words: every token is "
      "the "
      "likeliest. ±: standard error.");
}

void add_recall(report::html::Report& page, const Recall& recall) {
  page.section("Recall of pairs");
  page.chart(recall_chart(recall),
             "Values said again for their keys, by the number of pairs and the document's length.");
  add_table(page, pairs_table(recall));
  add_table(page, distance_table(recall));
  page.section("A fact hidden in a text");
  add_table(page, needle_table(recall));
}

}  // namespace

std::string evaluation_text(const LanguageEvaluation& evaluation) {
  std::string text = model_line(evaluation) + "\n";
  if (evaluation.perplexity)
    text += fmt::format("{}\n\n{}\n{}", data_line(evaluation), text_of(perplexity_table(*evaluation.perplexity)),
                        text_of(position_table(*evaluation.perplexity)));
  if (!evaluation.tasks.empty()) text += "\n" + text_of(task_table(evaluation.tasks));
  if (evaluation.recall)
    text += fmt::format("\n{}\n{}\n{}", text_of(pairs_table(*evaluation.recall)),
                        text_of(distance_table(*evaluation.recall)), text_of(needle_table(*evaluation.recall)));
  for (const std::string& note : notes_of(evaluation)) text += fmt::format("note: {}\n", note);
  return text;
}

io::Json evaluation_json(const LanguageEvaluation& evaluation) {
  io::Json json = {{"model", evaluation.model}, {"config", evaluation.options}};
  if (evaluation.perplexity) json["perplexity"] = perplexity_json(evaluation);
  if (!evaluation.tasks.empty()) json["shots"] = evaluation.shots;
  for (const TaskScore& task : evaluation.tasks) json["tasks"].push_back(task_json(task));
  if (evaluation.recall) json["recall"] = recall_json(*evaluation.recall);
  return json;
}

std::string evaluation_page(const LanguageEvaluation& evaluation) {
  report::html::Report page(fmt::format("Language model {}", evaluation.model), model_line(evaluation));
  if (evaluation.perplexity) add_perplexity(page, evaluation);
  if (!evaluation.tasks.empty()) add_tasks(page, evaluation);
  if (evaluation.recall) add_recall(page, *evaluation.recall);
  for (const std::string& note : notes_of(evaluation)) page.note(note);
  return page.page();
}

}  // namespace mhla::tasks
