// Charts from the rows of metrics.jsonl.
#include "train/run_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "io/file.hpp"
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
  report.section(fmt::format("{}: {:.4f} at the end, {:.4f} to {:.4f} on the way", keys.front(), first.y.back(),
                             std::ranges::min(first.y), std::ranges::max(first.y)));
  LineChart chart{"", "epoch", "", false, false, {}, false};
  add_evaluations(chart, rows, keys);
  report.chart(chart.svg(), "After each evaluation.");
}

std::string small_chart(const std::vector<io::Json>& rows, const std::string& key, const std::string& label, bool log) {
  return LineChart{"", "epoch", label, false, log, {curve(rows, key, label)}}.svg(720, 240);
}

// The newest picture and a few before it, at equal distances.
void add_pictures(Report& report, const std::vector<io::Json>& rows, const std::filesystem::path& folder) {
  constexpr std::size_t kShown = 4;
  std::vector<report::html::Picture> found;
  for (const io::Json& row : rows) {
    if (!row.contains("picture") || !row["picture"].is_string()) continue;
    const std::filesystem::path name = row["picture"].get<std::string>(), file = folder / "samples" / name.filename();
    if (std::error_code failure; std::filesystem::is_regular_file(file, failure))
      found.push_back({io::read_file(file), fmt::format("step {}", row.at("step").dump()), ""});
  }
  if (found.empty()) return;
  std::vector<report::html::Picture> shown;
  for (std::size_t i = std::min(kShown, found.size()); i-- > 0;)
    shown.push_back(found[found.size() - 1 - i * (found.size() - 1) / std::max<std::size_t>(kShown - 1, 1)]);
  report.section("Samples");
  report.pictures(shown, "", "Drawn from the same noise at every evaluation, by the averaged weights where there are.");
}

// What the newest evaluations wrote, the last one first.
void add_texts(Report& report, const std::vector<io::Json>& rows) {
  constexpr std::size_t kShown = 4;
  std::vector<std::vector<std::string>> shown;
  for (auto row = rows.rbegin(); row != rows.rend() && shown.size() < kShown; ++row)
    if (row->contains("text") && (*row)["text"].is_string())
      shown.push_back({row->at("step").dump(), (*row)["text"].get<std::string>()});
  if (shown.empty()) return;
  report.section("Samples");
  report.table({"step", "text"}, shown);
}

}  // namespace

std::string run_page(const std::vector<io::Json>& rows, const Facts& about, const std::filesystem::path& folder) {
  const std::string step = rows.empty() ? "0" : rows.back().at("step").dump();
  Report report(about.front().second, fmt::format("Curves of a run after step {}", step));
  std::vector<std::pair<std::string, std::string>> figures;
  for (auto row = rows.rbegin(); row != rows.rend() && figures.empty(); ++row)
    for (const auto& item : row->items())
      if (item.key().find('/') != std::string::npos && item.value().is_number())
        figures.emplace_back(fmt::format("{:.4f}", item.value().get<double>()),
                             fmt::format("{} at epoch {:.4g}", item.key(), row->at("epoch").get<double>()));
  report.key_figures(figures);
  add_pictures(report, rows, folder);
  add_texts(report, rows);
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
