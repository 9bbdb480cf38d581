// Rows as a table and as curves.
#include "cli/bench/model_tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "cli/support/output.hpp"
#include "io/file.hpp"
#include "report/line_chart.hpp"

namespace mhla::cli::bench {
namespace {

// Times of another attention in the same run, over those of `row`.
std::optional<double> speed_over(const char* attention, const std::vector<ModelRow>& rows, const ModelRow& row) {
  for (const ModelRow& other : rows)
    if (other.attention == attention && other.pass == row.pass && other.tokens == row.tokens && !other.out_of_memory &&
        !row.out_of_memory)
      return other.ms_median / row.ms_median;
  return std::nullopt;
}

std::string ratio(std::optional<double> value) { return value ? fmt::format("{:.2f}x", *value) : "-"; }

std::vector<std::string> line_of(const ModelRow& row, const std::vector<ModelRow>& rows) {
  std::vector<std::string> cells;
  if (!row.language()) cells.push_back(std::to_string(row.height));
  cells.insert(cells.end(), {std::to_string(row.tokens), row.pass,
                             row.softmax.empty() ? row.attention : row.attention + " " + row.softmax,
                             row.blocks > 0 ? std::to_string(row.blocks) : "-", std::to_string(row.batch)});
  if (row.out_of_memory) {
    cells.insert(cells.end(), {"out of memory", "-", "-", "-", "-", "-", "-"});
    return cells;
  }
  cells.insert(cells.end(),
               {three_digits(row.ms_median), three_digits(row.ms_p10) + "-" + three_digits(row.ms_p90),
                three_digits(row.language() ? row.tokens_per_second() : row.images_per_second()),
                ratio(speed_over("softmax", rows, row)), ratio(speed_over("linear", rows, row)),
                fmt::format("{:.1f}", static_cast<double>(row.peak_bytes) / 1e6), fmt::format("{:.1e}", row.rel_err)});
  return cells;
}

}  // namespace

std::string model_table(const std::vector<ModelRow>& rows) {
  const bool language = !rows.empty() && rows.front().language();
  std::vector<std::string> header = {"N",       "pass",     "attention",  "M",         "batch",   "ms",
                                     "p10-p90", "images/s", "vs softmax", "vs linear", "peak MB", "rel err"};
  if (language)
    header[7] = "tokens/s";
  else
    header.insert(header.begin(), "px");
  std::vector<std::vector<std::string>> lines;
  lines.reserve(rows.size());
  for (const ModelRow& row : rows) lines.push_back(line_of(row, rows));
  return table(header, lines);
}

std::string mhla_summary(const std::vector<ModelRow>& rows) {
  std::string text;
  for (const char* other : {"linear", "gla", "softmax"}) {
    std::vector<double> speeds;
    for (const ModelRow& row : rows)
      if (const auto speed = speed_over(other, rows, row); row.attention == "mhla" && speed) speeds.push_back(*speed);
    if (speeds.empty()) continue;
    const auto [least, most] = std::ranges::minmax(speeds);
    text += fmt::format("MHLA's speed over {}: {:.2f}x to {:.2f}x\n", other, least, most);
  }
  return text;
}

void draw_model_charts(const std::vector<ModelRow>& rows, const std::filesystem::path& folder) {
  std::vector<std::string> passes;
  for (const ModelRow& row : rows)
    if (std::ranges::find(passes, row.pass) == passes.end()) passes.push_back(row.pass);
  for (const std::string& pass : passes) {
    const auto chart = [&](const char* quantity, const char* unit, const auto& value) {
      std::map<std::string, report::Series> series;
      for (const ModelRow& row : rows) {
        if (row.pass != pass || row.out_of_memory) continue;
        report::Series& line = series[row.label()];
        line.label = row.label();
        line.x.push_back(static_cast<double>(row.tokens));
        line.y.push_back(value(row));
      }
      report::LineChart drawn{fmt::format("{}, {}: {}", rows.front().model, pass, quantity), "tokens N", unit};
      drawn.x_log = drawn.y_log = true;
      for (const auto& [label, line] : series) drawn.series.push_back(line);
      io::write_file(folder / fmt::format("{}_{}.svg", quantity, pass), drawn.svg());
    };
    const bool language = rows.front().language();
    chart("throughput", language ? "tokens per second" : "images per second",
          [](const ModelRow& row) { return row.language() ? row.tokens_per_second() : row.images_per_second(); });
    chart("memory", language ? "peak MB per sequence" : "peak MB per image", [](const ModelRow& row) {
      return static_cast<double>(row.peak_bytes) / 1e6 / static_cast<double>(row.batch);
    });
  }
}

}  // namespace mhla::cli::bench
