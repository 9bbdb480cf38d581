// Numbers with their standard errors: "3.214 +- 0.012".
#include "tasks/language/evaluation_tables.hpp"

#include <fmt/format.h>

#include <cmath>

#include "report/text.hpp"

namespace mhla::tasks {
namespace {

std::string count_text(std::int64_t count) { return report::grouped(static_cast<double>(count)); }
std::string percent_text(double share) { return fmt::format("{:.1f} %", 100.0 * share); }

std::string with_error(double value, double error, int digits) {
  const auto text = [&](double number) {
    return value < 1e4 ? fmt::format("{:.{}f}", number, digits) : report::three_digits(number);
  };
  return std::isfinite(error) ? fmt::format("{} ± {}", text(value), text(error)) : text(value);
}
std::string with_error(const MeanWithError& mean, int digits) { return with_error(mean.mean, mean.error, digits); }
std::string share_with_error(double share, double error) {
  return std::isfinite(error) ? fmt::format("{:.1f} ± {:.1f} %", 100.0 * share, 100.0 * error) : percent_text(share);
}
std::string share_with_error(const Metric& metric) { return share_with_error(metric.value, metric.error); }

// Decimals that show three digits of a number.
int decimals(double value) { return value >= 100.0 ? 1 : value >= 10.0 ? 2 : 3; }

}  // namespace

EvaluationTable perplexity_table(const Perplexity& result) {
  EvaluationTable table{{"measure", "value"}};
  table.rows.push_back({"loss, nats per token", with_error(result.loss, 4)});
  const double token = result.per_token(), word = result.per_word();
  table.rows.push_back({"perplexity per token", with_error(token, result.per_token_error(), decimals(token))});
  table.rows.push_back({"perplexity per word", with_error(word, result.per_word_error(), decimals(word))});
  table.rows.push_back({"bits per byte", with_error(result.bits_per_byte(), result.bits_per_byte_error(), 4)});
  return table;
}

EvaluationTable position_table(const Perplexity& result) {
  EvaluationTable table{{"tokens before", "loss", "perplexity", "tokens"}};
  for (const PositionLoss& position : result.positions)
    table.rows.push_back({position.first == position.last
                              ? count_text(position.first)
                              : fmt::format("{} - {}", count_text(position.first), count_text(position.last)),
                          with_error(position.loss, 4), report::three_digits(std::exp(position.loss.mean)),
                          count_text(position.loss.values)});
  return table;
}

EvaluationTable task_table(const std::vector<TaskScore>& tasks) {
  EvaluationTable table{{"task", "questions", "acc", "acc_norm", "chance", "perplexity"}};
  for (const TaskScore& task : tasks)
    table.rows.push_back(
        {task.task, count_text(task.questions), share_with_error(task.accuracy),
         task.normalised ? share_with_error(*task.normalised) : "-", task.perplexity ? "-" : percent_text(task.chance),
         task.perplexity ? with_error(task.perplexity->value, task.perplexity->error, decimals(task.perplexity->value))
                         : "-"});
  return table;
}

EvaluationTable pairs_table(const Recall& recall) {
  EvaluationTable table{{"length", "pairs", "exact", "among the values", "chance", "values asked"}};
  for (const PairsScore& row : recall.pairs)
    table.rows.push_back({count_text(row.length), std::to_string(row.pairs),
                          share_with_error(row.score.exact.mean, row.score.exact.error),
                          share_with_error(row.score.chosen.mean, row.score.chosen.error), percent_text(row.chance()),
                          count_text(row.score.exact.values)});
  return table;
}

EvaluationTable distance_table(const Recall& recall) {
  EvaluationTable table{{"length", "said tokens before", "exact", "among the values", "values asked"}};
  for (const DistanceScore& row : recall.distances)
    table.rows.push_back({count_text(row.length), fmt::format("{} - {}", count_text(row.first), count_text(row.last)),
                          share_with_error(row.score.exact.mean, row.score.exact.error),
                          share_with_error(row.score.chosen.mean, row.score.chosen.error),
                          count_text(row.score.exact.values)});
  return table;
}

EvaluationTable needle_table(const Recall& recall) {
  EvaluationTable table{{"length", "depth", "exact", fmt::format("among {} words", kNeedleChoices), "texts"}};
  for (const NeedleScore& row : recall.needles)
    table.rows.push_back({count_text(row.length), fmt::format("{:.0f} %", 100.0 * row.depth),
                          share_with_error(row.score.exact.mean, row.score.exact.error),
                          share_with_error(row.score.chosen.mean, row.score.chosen.error),
                          count_text(row.score.exact.values)});
  return table;
}

}  // namespace mhla::tasks
