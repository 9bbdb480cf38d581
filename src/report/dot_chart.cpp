// SVG of dot charts.
#include "report/dot_chart.hpp"

#include <array>

#include "report/axis.hpp"
#include "report/line_chart.hpp"
#include "report/svg.hpp"

namespace mhla::report {
namespace {

constexpr std::array<const char*, 6> kColours = {"#e0682d", "#24a06b", "#a25bd6", "#c9a00f", "#d64b7f", "#6b7280"};
constexpr const char* kOurColour = "#2f7dd1";  // the first of line charts
constexpr double kWidth = 900.0;
constexpr double kLeft = 285.0;
constexpr double kRight = 30.0;
constexpr double kLineHeight = 24.0;

std::string dot_of(const DotChart& chart, std::size_t contestant, double x, double y) {
  const bool ours = chart.contestants[contestant] == chart.ours;
  return svg::dot(x, y, ours ? 6 : 4.5, ours ? kOurColour : kColours[contestant % kColours.size()]);
}

std::string legend(const DotChart& chart, double y) {
  std::string body;
  double x = kLeft;
  for (std::size_t i = 0; i < chart.contestants.size(); ++i) {
    body += dot_of(chart, i, x, y - 4) + svg::text(x + 11, y, "start", 13, chart.contestants[i]);
    x += 34 + svg::kLetterWidth * static_cast<double>(chart.contestants[i].size());
  }
  return body;
}

}  // namespace

std::string DotChart::svg() const {
  std::vector<double> all = {1.0};
  for (const Panel& panel : panels)
    for (const Line& line : panel.lines)
      for (const auto& [contestant, value] : line.values) all.push_back(value);
  const Axis axis(all, true, false);
  const auto across = [&](double value) { return kLeft + axis.share(value) * (kWidth - kLeft - kRight); };

  std::string body = svg::text(16, 24, "start", 15, title) + legend(*this, 52);
  double y = 72.0;
  for (const Panel& panel : panels) {
    if (panel.lines.empty()) continue;
    const double top = y;
    std::string dots;
    for (const Line& line : panel.lines) {
      y += kLineHeight;
      dots += svg::text(kLeft - 14, y + 4, "end", 12, line.label) + svg::rule(kLeft, y, kWidth - kRight, y, 0.22);
      for (std::size_t i = 0; i < contestants.size(); ++i)
        if (const auto found = line.values.find(contestants[i]); found != line.values.end())
          dots += dot_of(*this, i, across(found->second), y);
    }
    y += kLineHeight;
    for (const double tick : axis.ticks()) {
      body += svg::rule(across(tick), top + 6, across(tick), y - 6, tick == 1.0 ? 0.9 : 0.22);
      body += svg::text(across(tick), y + 8, "middle", 12, short_number(tick));
    }
    body += dots + svg::text(16, top + 10, "start", 13, panel.name);
    body += svg::text((kLeft + kWidth - kRight) / 2, y + 27, "middle", 13, panel.x_label);
    y += 52.0;
  }
  return svg::picture(kWidth, y, about, body);
}

}  // namespace mhla::report
