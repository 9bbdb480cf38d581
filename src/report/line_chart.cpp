// SVG of line charts.
#include "report/line_chart.hpp"

#include <fmt/format.h>

#include <cmath>

#include "report/axis.hpp"
#include "report/svg.hpp"

namespace mhla::report {
namespace {

using svg::kColours;

constexpr int kLeft = 66;
constexpr int kRight = 24;
constexpr int kBottom = 52;

struct Frame {
  double x, y, width, height;
  double across(double share) const { return x + share * width; }
  double up(double share) const { return y + (1.0 - share) * height; }
};

std::string grid_and_ticks(const Frame& frame, const Axis& x_axis, const Axis& y_axis) {
  std::string body;
  for (const double tick : y_axis.ticks()) {
    const double y = frame.up(y_axis.share(tick));
    body += svg::grid_line(frame.x, y, frame.x + frame.width, y) +
            svg::text(frame.x - 8, y + 4, "end", 12, short_number(tick));
  }
  for (const double tick : x_axis.ticks()) {
    const double x = frame.across(x_axis.share(tick));
    body += svg::grid_line(x, frame.y, x, frame.y + frame.height) +
            svg::text(x, frame.y + frame.height + 18, "middle", 12, short_number(tick));
  }
  return body;
}

std::string line(const Series& series, const Frame& frame, const Axis& x_axis, const Axis& y_axis, const char* colour) {
  std::string points;
  std::string markers;
  for (std::size_t i = 0; i < series.x.size() && i < series.y.size(); ++i) {
    if (!x_axis.has_place_for(series.x[i]) || !y_axis.has_place_for(series.y[i])) continue;
    const double x = frame.across(x_axis.share(series.x[i]));
    const double y = frame.up(y_axis.share(series.y[i]));
    points += fmt::format("{:.1f},{:.1f} ", x, y);
    if (series.markers && !series.dashed) markers += svg::dot(x, y, 3.5, colour);
  }
  return fmt::format(
             "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2.2\" stroke-linejoin=\"round\"{}/>\n",
             points, colour, series.dashed ? " stroke-dasharray=\"6 5\"" : "") +
         markers;
}

// Entries left to right, wrapped into rows; returns the height used.
double legend(const std::vector<Series>& series, double left, double right, double top, std::string& body) {
  double x = left;
  double y = top;
  for (std::size_t i = 0; i < series.size(); ++i) {
    const double width = 34 + svg::kLetterWidth * static_cast<double>(series[i].label.size()) + 14;
    if (x > left && x + width > right) {
      x = left;
      y += 20;
    }
    body += fmt::format(
        "<line x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" stroke-width=\"3\"{}/>\n", x,
        x + 24, y - 4, y - 4, kColours[i % kColours.size()], series[i].dashed ? " stroke-dasharray=\"6 4\"" : "");
    body += svg::text(x + 31, y, "start", 13, series[i].label);
    x += width;
  }
  return y - top + 20;
}

}  // namespace

std::string short_number(double value) {
  const double size = std::abs(value);
  if (size >= 1e9) return fmt::format("{:.3g}G", value / 1e9);
  if (size >= 1e6) return fmt::format("{:.3g}M", value / 1e6);
  if (size >= 1e3) return fmt::format("{:.3g}k", value / 1e3);
  return fmt::format("{:.3g}", value);
}

std::string LineChart::svg(int width, int height) const {
  std::vector<double> xs;
  std::vector<double> ys;
  for (const Series& entry : series) {
    xs.insert(xs.end(), entry.x.begin(), entry.x.end());
    ys.insert(ys.end(), entry.y.begin(), entry.y.end());
  }
  const Axis x_axis(xs, x_log, false);
  const Axis y_axis(ys, y_log, y_from_zero);

  std::string body;
  double top = 14;
  if (!title.empty()) {
    body += svg::text(kLeft - 50, 20, "start", 15, title, " font-weight=\"600\"");
    top = 36;
  }
  const double legend_height = legend(series, kLeft, width - kRight, top + 10, body);
  const Frame frame{kLeft, top + legend_height + 4, static_cast<double>(width - kLeft - kRight),
                    height - top - legend_height - 4 - kBottom};
  body += grid_and_ticks(frame, x_axis, y_axis);
  for (std::size_t i = 0; i < series.size(); ++i)
    body += line(series[i], frame, x_axis, y_axis, kColours[i % kColours.size()]);
  body += svg::text(frame.x + frame.width / 2, height - 10, "middle", 13, x_label);
  const double middle = frame.y + frame.height / 2;
  body += svg::text(16, middle, "middle", 13, y_label, fmt::format(" transform=\"rotate(-90 16 {:.1f})\"", middle));
  return svg::picture(width, height, title.empty() ? y_label : title, body);
}

}  // namespace mhla::report
