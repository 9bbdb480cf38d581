// Elements of SVG.
#include "report/svg.hpp"

#include <fmt/format.h>

#include "report/html.hpp"

namespace mhla::report::svg {
namespace {

constexpr const char* kInk = "#6b7280";

}  // namespace

std::string text(double x, double y, const char* anchor, int size, const std::string& content,
                 const std::string& extra) {
  return fmt::format(
      "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" font-size=\"{}\" fill=\"{}\"{}>{}</text>\n",
      x, y, anchor, size, kInk, extra, html::escape(content));
}

std::string grid_line(double x1, double y1, double x2, double y2, double opacity) {
  return fmt::format(
      "<line class=\"grid\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\" "
      "stroke-opacity=\"{}\"/>\n",
      x1, x2, y1, y2, kInk, opacity);
}

std::string dot(double x, double y, double radius, const char* colour) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"/>\n", x, y, radius, colour);
}

std::string picture(double width, double height, const std::string& label, const std::string& body) {
  return fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif\" "
      "role=\"img\" aria-label=\"{2}\">\n{3}</svg>\n",
      width, height, html::escape(label), body);
}

}  // namespace mhla::report::svg
