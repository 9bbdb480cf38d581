// One axis of a chart: which values it covers, where they lie, and where its ticks are.
#pragma once

#include <vector>

namespace mhla::report {

class Axis {
 public:
  // `values` may hold anything; those without a place on the axis are ignored. Ends are rounded outward to ticks.
  Axis(const std::vector<double>& values, bool logarithmic, bool from_zero);

  bool has_place_for(double value) const;
  double share(double value) const;  // 0 at the low end, 1 at the high end
  const std::vector<double>& ticks() const { return ticks_; }

 private:
  void place_linear_ticks(bool from_zero);
  void place_log_ticks();

  bool logarithmic_;
  double low_ = 0.0;
  double high_ = 1.0;
  std::vector<double> ticks_;
};

}  // namespace mhla::report
