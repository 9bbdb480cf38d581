// Charts from the rows of metrics.jsonl.
#include "train/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "report/html.hpp"
#include "report/line_chart.hpp"

namespace mhla::train {
namespace {

using report::LineChart;
using report::html::Report;

report::Series curve(const std::vector<io::Json>& rows, const std::string& key, const std::string& label) {
  report::Series line{label, {}, {}, false, false};
  for (const io::Json& row : rows)
    if (const auto found = row.find(key); found != row.end() && found->is_number()) {
      line.x.push_back(row.at("epoch").get<double>());
      line.y.push_back(found->get<double>());
    }
  return line;
}

// "val/top1" and "val/top5" share a chart, "val/loss" joins the training loss.
std::map<std::string, std::vector<std::string>> evaluation_keys(const std::vector<io::Json>& rows) {
  std::map<std::string, std::vector<std::string>> groups;
  for (const io::Json& row : rows)
    for (const auto& item : row.items()) {
      const auto slash = item.key().find('/');
      if (slash == std::string::npos) continue;
      auto& keys = groups[item.key().ends_with("/loss") ? "loss" : item.key().substr(0, slash)];
      if (std::ranges::find(keys, item.key()) == keys.end()) keys.push_back(item.key());
    }
  return groups;
}

void add_evaluations(LineChart& chart, const std::vector<io::Json>& rows, const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    chart.series.push_back(curve(rows, key, key));
    chart.series.back().markers = true;
  }
}

void add_loss(Report& report, const std::vector<io::Json>& rows, const std::vector<std::string>& keys) {
  const report::Series training = curve(rows, "loss", "training");
  if (training.y.empty()) return;
  report.section(fmt::format("The loss went from {:.3f} to {:.3f}", training.y.front(), training.y.back()));
  LineChart chart{"", "epoch", "loss", false, false, {training}, false};
  add_evaluations(chart, rows, keys);
  report.chart(chart.svg(), "Training loss is the mean over the steps since the point before.");
}

void add_scores(Report& report, const std::vector<io::Json>& rows, const std::vector<std::string>& keys) {
  const report::Series first = curve(rows, keys.front(), "");
  if (first.y.empty()) return;
  report.section(fmt::format("Highest {}: {:.4f}", keys.front(), std::ranges::max(first.y)));
  LineChart chart{"", "epoch", "", false, false, {}, false};
  add_evaluations(chart, rows, keys);
  report.chart(chart.svg(), "After each evaluation.");
}

std::string small_chart(const std::vector<io::Json>& rows, const std::string& key, const std::string& label, bool log) {
  return LineChart{"", "epoch", label, false, log, {curve(rows, key, label)}}.svg(720, 240);
}

}  // namespace

std::string run_page(const std::vector<io::Json>& rows, const Facts& about) {
  const std::string step = rows.empty() ? "0" : rows.back().at("step").dump();
  Report report(about.front().second, fmt::format("Curves of a run after step {}", step));
  std::vector<std::pair<std::string, std::string>> figures;
  for (auto row = rows.rbegin(); row != rows.rend() && figures.empty(); ++row)
    for (const auto& item : row->items())
      if (item.key().find('/') != std::string::npos && item.value().is_number())
        figures.emplace_back(fmt::format("{:.4f}", item.value().get<double>()),
                             fmt::format("{} at epoch {:.4g}", item.key(), row->at("epoch").get<double>()));
  report.key_figures(figures);
  auto groups = evaluation_keys(rows);
  add_loss(report, rows, groups["loss"]);
  groups.erase("loss");
  for (const auto& [group, keys] : groups) add_scores(report, rows, keys);
  report.section("Learning rate and gradients");
  report.chart(small_chart(rows, "lr", "learning rate", false), "Of the last step of each interval.");
  report.chart(small_chart(rows, "grad_norm", "gradient norm", true), "Norm of all gradients before clipping.");
  report.section("Settings");
  std::vector<std::vector<std::string>> facts;
  for (std::size_t i = 1; i < about.size(); ++i) facts.push_back({about[i].first, about[i].second});
  report.table({"", ""}, facts);
  return report.page();
}

}  // namespace mhla::train
