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

// Of softmax attention in the same run.
std::optional<double> softmax_ms(const std::vector<ModelRow>& rows, const ModelRow& like) {
  for (const ModelRow& row : rows)
    if (row.attention == "softmax" && row.pass == like.pass && row.height == like.height) return row.ms_median;
  return std::nullopt;
}

}  // namespace

std::string model_table(const std::vector<ModelRow>& rows) {
  std::vector<std::vector<std::string>> lines;
  for (const ModelRow& row : rows) {
    const auto softmax = softmax_ms(rows, row);
    lines.push_back(
        {std::to_string(row.height), std::to_string(row.tokens), row.pass, row.attention,
         row.blocks > 0 ? std::to_string(row.blocks) : "-", std::to_string(row.batch), three_digits(row.ms_median),
         three_digits(row.ms_p10) + "-" + three_digits(row.ms_p90), three_digits(row.images_per_second()),
         softmax ? fmt::format("{:.2f}x", *softmax / row.ms_median) : "-",
         fmt::format("{:.1f}", static_cast<double>(row.peak_bytes) / 1e6), fmt::format("{:.1e}", row.rel_err)});
  }
  return table(
      {"px", "N", "pass", "attention", "M", "batch", "ms", "p10-p90", "images/s", "vs softmax", "peak MB", "rel err"},
      lines);
}

void draw_model_charts(const std::vector<ModelRow>& rows, const std::filesystem::path& folder) {
  std::vector<std::string> passes;
  for (const ModelRow& row : rows)
    if (std::ranges::find(passes, row.pass) == passes.end()) passes.push_back(row.pass);
  for (const std::string& pass : passes) {
    const auto chart = [&](const char* quantity, const char* unit, const auto& value) {
      std::map<std::string, report::Series> series;
      for (const ModelRow& row : rows) {
        if (row.pass != pass) continue;
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
    chart("throughput", "images per second", [](const ModelRow& row) { return row.images_per_second(); });
    chart("memory", "peak MB per image", [](const ModelRow& row) {
      return static_cast<double>(row.peak_bytes) / 1e6 / static_cast<double>(row.batch);
    });
  }
}

}  // namespace mhla::cli::bench
