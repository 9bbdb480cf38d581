// Charts from the rows of metrics.jsonl.
#include "train/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "analysis/html.hpp"
#include "analysis/line_chart.hpp"

namespace mhla::train {
namespace {

analysis::Series curve(const std::vector<io::Json>& rows, const std::string& key, const std::string& label) {
  analysis::Series line{label, {}, {}, false, false};
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

}  // namespace

std::string run_page(const std::vector<io::Json>& rows, const Facts& about) {
  analysis::html::Report report(about.front().second, about.front().first);
  auto groups = evaluation_keys(rows);

  std::vector<std::pair<std::string, std::string>> figures;
  for (auto row = rows.rbegin(); row != rows.rend() && figures.empty(); ++row)
    for (const auto& item : row->items())
      if (item.key().find('/') != std::string::npos && item.value().is_number())
        figures.emplace_back(fmt::format("{:.4f}", item.value().get<double>()),
                             fmt::format("{} at epoch {:.4g}", item.key(), row->at("epoch").get<double>()));
  report.key_figures(figures);

  report.section("Loss");
  analysis::LineChart losses{"", "epoch", "loss", false, false, {curve(rows, "loss", "training")}, false};
  for (const std::string& key : groups["loss"]) {
    losses.series.push_back(curve(rows, key, key));
    losses.series.back().markers = true;
  }
  groups.erase("loss");
  report.chart(losses.svg(), "Training loss is the mean over the steps since the point before.");
  for (const auto& [group, keys] : groups) {
    report.section(group);
    analysis::LineChart chart{"", "epoch", group, false, false, {}, false};
    for (const std::string& key : keys) {
      chart.series.push_back(curve(rows, key, key));
      chart.series.back().markers = true;
    }
    report.chart(chart.svg(), "");
  }
  report.section("Steps");
  report.chart(
      analysis::LineChart{"", "epoch", "learning rate", false, false, {curve(rows, "lr", "learning rate")}}.svg(720,
                                                                                                                240),
      "");
  report.chart(
      analysis::LineChart{"", "epoch", "gradient norm", false, true, {curve(rows, "grad_norm", "gradient norm")}}.svg(
          720, 240),
      "Norm of all gradients before clipping.");
  report.section("Settings");
  std::vector<std::vector<std::string>> facts;
  for (std::size_t i = 1; i < about.size(); ++i) facts.push_back({about[i].first, about[i].second});
  report.table({"", ""}, facts);
  return report.page();
}

}  // namespace mhla::train
