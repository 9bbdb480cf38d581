// Line charts as SVG: axes (linear or logarithmic), grid, legend. Colours read on light and dark ground.
#pragma once

#include <string>
#include <vector>

namespace mhla::report {

struct Series {
  std::string label{};
  std::vector<double> x{}, y{};
  bool dashed = false;  // for bounds and ideals
  bool markers = true;
};

struct LineChart {
  std::string title{};
  std::string x_label{}, y_label{};
  bool x_log = false, y_log = false;
  std::vector<Series> series{};
  bool y_from_zero = true;  // linear y axes start at zero

  // Points that have no place on the axes (not finite, or not positive on a logarithmic axis) are left out.
  std::string svg(int width = 720, int height = 400) const;
};

// 950, 1.5k, 64k, 1M: the way axes and tables name large counts.
std::string short_number(double value);

}  // namespace mhla::report
