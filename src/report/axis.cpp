// Ranges and ticks of chart axes.
#include "report/axis.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mhla::report {

Axis::Axis(const std::vector<double>& values, bool logarithmic, bool from_zero) : logarithmic_(logarithmic) {
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const double value : values) {
    if (!has_place_for(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (low > high) {
    low = 1.0;
    high = 10.0;
  }
  low_ = low;
  high_ = high;
  if (logarithmic_)
    place_log_ticks();
  else
    place_linear_ticks(from_zero);
}

bool Axis::has_place_for(double value) const { return std::isfinite(value) && (!logarithmic_ || value > 0.0); }

double Axis::share(double value) const {
  if (logarithmic_) return std::log(value / low_) / std::log(high_ / low_);
  return (value - low_) / (high_ - low_);
}

void Axis::place_linear_ticks(bool from_zero) {
  if (from_zero) low_ = std::min(low_, 0.0);
  if (high_ <= low_) high_ = low_ + 1.0;
  const double rough = (high_ - low_) / 5.0;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10.0 * power;
  for (const double nice : {1.0, 2.0, 2.5, 5.0})
    if (nice * power >= rough) {
      step = nice * power;
      break;
    }
  const double first = std::floor(low_ / step);
  const double last = std::ceil(high_ / step - 1e-9);
  for (auto i = std::llround(first); i <= std::llround(last); ++i) ticks_.push_back(static_cast<double>(i) * step);
  low_ = first * step;
  high_ = last * step;
}

// Decades where there are at least two, else 1-2-5 steps; powers of four thin out long runs of decades.
void Axis::place_log_ticks() {
  const double decades = std::log10(high_ / low_);
  std::vector<double> steps = {1.0};
  if (decades < 2.5) steps = {1.0, 2.0, 5.0};
  std::vector<double> candidates;
  const auto lowest = std::llround(std::floor(std::log10(low_)) - 1);
  const auto highest = std::llround(std::ceil(std::log10(high_)) + 1);
  for (auto e = lowest; e <= highest; ++e)
    for (const double step : steps) candidates.push_back(step * std::pow(10.0, static_cast<double>(e)));
  const auto first = std::upper_bound(candidates.begin(), candidates.end(), low_ * 1.0000001) - 1;
  const auto last = std::lower_bound(candidates.begin(), candidates.end(), high_ * 0.9999999);
  ticks_.assign(first, last + 1);
  if (ticks_.size() == 1) ticks_.push_back(ticks_.front() * 10.0);
  low_ = ticks_.front();
  high_ = ticks_.back();
}

}  // namespace mhla::report
