// Dots on lines: how many times the floor each implementation takes.
#include "cli/bench/chart.hpp"

#include <fmt/format.h>

#include "cli/bench/tables.hpp"
#include "report/axis.hpp"
#include "report/line_chart.hpp"
#include "report/svg.hpp"

namespace mhla::cli::bench {
namespace {

namespace svg = report::svg;

constexpr double kWidth = 900.0;
constexpr double kLeft = 285.0;
constexpr double kRight = 30.0;
constexpr double kLineHeight = 24.0;

std::string dot(double x, double y, bool ours, const char* colour) { return svg::dot(x, y, ours ? 6 : 4.5, colour); }

// The operator has the colour it has in every other chart.
const char* colour_of(const std::vector<std::string>& impls, std::size_t i) {
  return impls[i] == "mhla" ? svg::kColours[0] : svg::kColours[1 + i % (svg::kColours.size() - 1)];
}

std::string legend(const std::vector<std::string>& impls, double y) {
  std::string body;
  double x = kLeft;
  for (std::size_t i = 0; i < impls.size(); ++i) {
    body += dot(x, y - 4, impls[i] == "mhla", colour_of(impls, i)) + svg::text(x + 11, y, "start", 13, impls[i]);
    x += 34 + svg::kLetterWidth * static_cast<double>(impls[i].size());
  }
  return body;
}

}  // namespace

std::string draw_chart(const std::vector<Row>& rows, const std::string& machine) {
  const std::vector<Comparison> comparisons = compare(rows);
  const std::vector<std::string> impls = compared_impls(rows);
  std::vector<double> all = {1.0};
  for (const Comparison& c : comparisons)
    for (const auto& [impl, ms] : c.ms) all.push_back(ms / c.floor_ms);
  const report::Axis axis(all, true, false);
  const auto across = [&](double times) { return kLeft + axis.share(times) * (kWidth - kLeft - kRight); };

  std::string body = svg::text(16, 24, "start", 15, machine) + legend(impls, 52);
  double y = 72.0;
  for (const char* pass : {"fwd", "fwd+bwd"}) {
    const double top = y;
    std::string dots;
    for (const Comparison& c : comparisons) {
      if (c.pass != pass) continue;
      y += kLineHeight;
      dots += svg::text(kLeft - 14, y + 4, "end", 12, fmt::format("{} {}, {}", c.shape, c.sizes, c.normalizer));
      dots += svg::grid_line(kLeft, y, kWidth - kRight, y);
      for (std::size_t i = 0; i < impls.size(); ++i)
        if (const auto found = c.ms.find(impls[i]); found != c.ms.end())
          dots += dot(across(found->second / c.floor_ms), y, impls[i] == "mhla", colour_of(impls, i));
    }
    if (dots.empty()) continue;
    y += kLineHeight;
    for (const double tick : axis.ticks()) {
      body += svg::grid_line(across(tick), top + 6, across(tick), y - 6, tick == 1.0 ? 0.9 : svg::kFaint);
      body += svg::text(across(tick), y + 8, "middle", 12, report::short_number(tick));
    }
    body += dots + svg::text(16, top + 10, "start", 13, pass);
    body += svg::text((kLeft + kWidth - kRight) / 2, y + 27, "middle", 13,
                      fmt::format("{}: time over the floor (1: token tensors moved once at copy speed)", pass));
    y += 52.0;
  }
  return svg::picture(kWidth, y, "Time over the floor", body);
}

}  // namespace mhla::cli::bench
