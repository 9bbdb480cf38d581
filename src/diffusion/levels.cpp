// The noise levels that a solver walks through.
#include "diffusion/levels.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace mhla::diffusion {
namespace {

constexpr Level kData{1.0, 0.0, 0.0};
constexpr double kFlowTimes = 1000.0;  // a flow network is told 1,000 sigma

Level level_at(const Schedule& schedule, std::int64_t t) {
  const auto i = static_cast<std::size_t>(t);
  return {std::sqrt(schedule.alpha_bar[i]), std::sqrt(1.0 - schedule.alpha_bar[i]),
          static_cast<double>(schedule.times[i])};
}

}  // namespace

Levels noise_levels(const Schedule& schedule, std::int64_t steps, Spacing spacing) {
  if (steps < 1 || steps > schedule.steps())
    throw std::invalid_argument(fmt::format("steps is {}; it may be 1 to {}", steps, schedule.steps()));
  Levels levels;
  if (spacing == Spacing::respaced) {
    const Schedule chosen = respaced(schedule, steps);
    for (std::int64_t i = steps - 1; i >= 0; --i) levels.push_back(level_at(chosen, i));
    // One step starts at noise, not at the schedule's first level.
    if (steps == 1) levels.front() = level_at(schedule, schedule.steps() - 1);
  } else {
    const double last = static_cast<double>(schedule.steps() - 1);
    for (std::int64_t i = steps; i >= 1; --i)
      levels.push_back(level_at(schedule, spacing == Spacing::leading ? (i - 1) * (schedule.steps() / steps)
                                                                      : std::llrint(last * static_cast<double>(i) /
                                                                                    static_cast<double>(steps))));
  }
  levels.push_back(spacing == Spacing::leading ? level_at(schedule, 0) : kData);
  return levels;
}

Levels flow_levels(std::int64_t steps, double shift, FlowSpacing spacing) {
  if (steps < 1) throw std::invalid_argument(fmt::format("steps is {}; it must be at least 1", steps));
  if (!(shift > 0.0) || !std::isfinite(shift))
    throw std::invalid_argument(fmt::format("shift is {}; it must be a number above 0", shift));
  const auto shifted = [&](double sigma) { return shift * sigma / (1.0 + (shift - 1.0) * sigma); };
  const bool whole = spacing == FlowSpacing::whole_times;
  const double first = whole ? 1.0 - 1.0 / kFlowTimes : 1.0, last = whole ? 0.0 : shifted(1.0 / kFlowTimes);
  const auto count = static_cast<double>(whole ? steps : std::max<std::int64_t>(steps - 1, 1));
  Levels levels;
  for (std::int64_t i = 0; i < steps; ++i) {
    const double sigma = shifted(first + (last - first) * static_cast<double>(i) / count), time = kFlowTimes * sigma;
    levels.push_back({1.0 - sigma, sigma, whole ? std::floor(time) : time});
  }
  levels.push_back(kData);
  return levels;
}

}  // namespace mhla::diffusion
