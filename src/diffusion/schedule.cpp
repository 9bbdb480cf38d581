// Noise schedules.
#include "diffusion/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <stdexcept>

namespace mhla::diffusion {
namespace {

void need_steps(std::int64_t steps) {
  if (steps < 1) throw std::invalid_argument(fmt::format("steps is {}; it must be at least 1", steps));
}

}  // namespace

Schedule Schedule::from_betas(std::vector<double> betas) {
  Schedule schedule;
  schedule.alpha_bar.reserve(betas.size());
  double product = 1.0;
  for (const double beta : betas) schedule.alpha_bar.push_back(product *= 1.0 - beta);
  schedule.times.resize(betas.size());
  std::iota(schedule.times.begin(), schedule.times.end(), 0);
  schedule.betas = std::move(betas);
  return schedule;
}

Schedule linear_schedule(std::int64_t steps) {
  need_steps(steps);
  const double stretch = 1000.0 / static_cast<double>(steps), first = stretch * 1e-4, last = stretch * 0.02;
  std::vector<double> betas(static_cast<std::size_t>(steps), first);
  for (std::size_t t = 1; t < betas.size(); ++t)
    betas[t] = first + (last - first) * static_cast<double>(t) / static_cast<double>(steps - 1);
  for (double& beta : betas) beta = std::min(beta, 0.999);  // a stretched schedule of few steps passes 1
  return Schedule::from_betas(std::move(betas));
}

Schedule cosine_schedule(std::int64_t steps) {
  need_steps(steps);
  const auto alpha_bar = [&](std::int64_t t) {
    const double angle = (static_cast<double>(t) / static_cast<double>(steps) + 0.008) / 1.008 * std::numbers::pi / 2.0;
    return std::pow(std::cos(angle), 2);
  };
  std::vector<double> betas;
  betas.reserve(static_cast<std::size_t>(steps));
  for (std::int64_t t = 0; t < steps; ++t) betas.push_back(std::min(1.0 - alpha_bar(t + 1) / alpha_bar(t), 0.999));
  return Schedule::from_betas(std::move(betas));
}

Schedule parse_schedule(std::string_view name, std::int64_t steps) {
  if (name == "linear") return linear_schedule(steps);
  if (name == "cosine") return cosine_schedule(steps);
  throw std::invalid_argument(fmt::format("schedule is \"{}\"; it may be linear or cosine", name));
}

Schedule respaced(const Schedule& schedule, std::int64_t count) {
  if (count < 1 || count > schedule.steps())
    throw std::invalid_argument(fmt::format("steps is {}; it may be 1 to {}", count, schedule.steps()));
  const double stride = count == 1 ? 0.0 : static_cast<double>(schedule.steps() - 1) / static_cast<double>(count - 1);
  Schedule result;
  double position = 0.0, previous = 1.0;
  for (std::int64_t i = 0; i < count; ++i, position += stride) {
    const auto t = static_cast<std::size_t>(std::nearbyint(position));  // half to even
    result.times.push_back(schedule.times[t]);
    result.alpha_bar.push_back(schedule.alpha_bar[t]);
    result.betas.push_back(1.0 - schedule.alpha_bar[t] / previous);
    previous = schedule.alpha_bar[t];
  }
  return result;
}

}  // namespace mhla::diffusion
