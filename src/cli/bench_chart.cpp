// Dots on lines: how many times the floor each implementation takes.
#include "cli/bench_chart.hpp"

#include <fmt/format.h>

#include <array>

#include "cli/bench_tables.hpp"
#include "report/axis.hpp"
#include "report/html.hpp"
#include "report/line_chart.hpp"

namespace mhla::cli {
namespace {

using report::html::escape;

constexpr std::array<const char*, 7> kColours = {"#e0682d", "#24a06b", "#a25bd6", "#c9a00f",
                                                 "#d64b7f", "#6b7280", "#2f7dd1"};
constexpr const char* kInk = "#6b7280";
constexpr double kWidth = 900.0;
constexpr double kLeft = 285.0;
constexpr double kRight = 30.0;
constexpr double kLineHeight = 24.0;
constexpr double kLetterWidth = 7.2;

std::string text(double x, double y, const char* anchor, int size, const std::string& content) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\">{}</text>\n", x,
                     y, anchor, size, kInk, escape(content));
}

std::string line(double x1, double y1, double x2, double y2, double opacity) {
  return fmt::format(
      "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-opacity=\"{}\"/>\n", x1, y1,
      x2, y2, kInk, opacity);
}

std::string dot(double x, double y, bool ours, const char* colour) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y, ours ? 6 : 4.5, colour);
}

// The operator has the colour it has in every other chart.
const char* colour_of(const std::vector<std::string>& impls, std::size_t i) {
  return impls[i] == "mhla" ? kColours.back() : kColours[i % (kColours.size() - 1)];
}

std::string legend(const std::vector<std::string>& impls, double y) {
  std::string svg;
  double x = kLeft;
  for (std::size_t i = 0; i < impls.size(); ++i) {
    svg += dot(x, y - 4, impls[i] == "mhla", colour_of(impls, i)) + text(x + 11, y, "start", 13, impls[i]);
    x += 34 + kLetterWidth * static_cast<double>(impls[i].size());
  }
  return svg;
}

}  // namespace

std::string bench_chart(const std::vector<BenchRow>& rows, const std::string& machine) {
  const std::vector<BenchComparison> comparisons = compare(rows);
  const std::vector<std::string> impls = compared_impls(rows);
  std::vector<double> all = {1.0};
  for (const BenchComparison& c : comparisons)
    for (const auto& [impl, ms] : c.ms) all.push_back(ms / c.floor_ms);
  const report::Axis axis(all, true, false);
  const auto across = [&](double times) { return kLeft + axis.share(times) * (kWidth - kLeft - kRight); };

  std::string body = text(16, 24, "start", 15, machine) + legend(impls, 52);
  double y = 72.0;
  for (const char* pass : {"fwd", "fwd+bwd"}) {
    const double top = y;
    std::string dots;
    for (const BenchComparison& c : comparisons) {
      if (c.pass != pass) continue;
      y += kLineHeight;
      dots += text(kLeft - 14, y + 4, "end", 12, fmt::format("{} {}, {}", c.shape, c.sizes, c.normalizer));
      dots += line(kLeft, y, kWidth - kRight, y, 0.22);
      for (std::size_t i = 0; i < impls.size(); ++i)
        if (const auto found = c.ms.find(impls[i]); found != c.ms.end())
          dots += dot(across(found->second / c.floor_ms), y, impls[i] == "mhla", colour_of(impls, i));
    }
    if (dots.empty()) continue;
    y += kLineHeight;
    for (const double tick : axis.ticks()) {
      body += line(across(tick), top + 6, across(tick), y - 6, tick == 1.0 ? 0.9 : 0.22);
      body += text(across(tick), y + 8, "middle", 12, report::short_number(tick));
    }
    body += dots + text(16, top + 10, "start", 13, pass);
    body += text((kLeft + kWidth - kRight) / 2, y + 27, "middle", 13,
                 fmt::format("{}: time over the floor (1: token tensors moved once at copy speed)", pass));
    y += 52.0;
  }
  return fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif\" "
      "role=\"img\" aria-label=\"Time over the floor\">\n{2}</svg>\n",
      kWidth, y, body);
}

}  // namespace mhla::cli
