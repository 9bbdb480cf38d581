// Learning rates by step.
#include "train/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "mhla/types.hpp"

namespace mhla::train {

void Schedule::validate() const {
  if (kind != "cosine" && kind != "linear" && kind != "constant")
    throw Error(fmt::format("schedule is \"{}\"; it may be cosine, linear or constant", kind));
  if (!(peak > 0.0)) throw Error(fmt::format("learning rate is {}; it must be positive", peak));
  if (!(floor >= 0.0 && floor <= peak))
    throw Error(fmt::format("lowest learning rate is {}; it may be 0 to {}", floor, peak));
  if (!(warmup_from >= 0.0 && warmup_from <= peak))
    throw Error(fmt::format("first learning rate of the warm-up is {}; it may be 0 to {}", warmup_from, peak));
  if (steps < 1) throw Error(fmt::format("a run of {} steps; it must have at least one", steps));
  if (warmup < 0 || warmup > steps)
    throw Error(fmt::format("warm-up of {} steps; it may have 0 to {}, the steps of the run", warmup, steps));
}

double Schedule::at(std::int64_t step) const {
  if (step < warmup)
    return warmup_from + (peak - warmup_from) * static_cast<double>(step) / static_cast<double>(warmup);
  if (kind == "constant" || steps == warmup) return peak;
  const double done = std::min(1.0, static_cast<double>(step - warmup) / static_cast<double>(steps - warmup));
  const double left = kind == "linear" ? 1.0 - done : 0.5 * (1.0 + std::cos(std::numbers::pi * done));
  return floor + (peak - floor) * left;
}

}  // namespace mhla::train
