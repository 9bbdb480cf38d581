// How much noise each diffusion step adds: x_t = sqrt(abar_t) x_0 + sqrt(1 - abar_t) noise, t = 0 .. steps - 1.
#pragma once
#include <cstdint>
#include <string_view>
#include <vector>

namespace mhla::diffusion {

struct Schedule {
  std::vector<double> betas;
  std::vector<double> alpha_bar;  // products of 1 - beta
  // The time that the network is told at each step: of a respaced schedule, that of the schedule it was made from.
  std::vector<std::int64_t> times;

  static Schedule from_betas(std::vector<double> betas);
  [[nodiscard]] std::int64_t steps() const { return static_cast<std::int64_t>(betas.size()); }
};

// beta from 1e-4 to 0.02 for 1,000 steps, stretched for other numbers.
Schedule linear_schedule(std::int64_t steps = 1000);
// abar_t = cos^2((t / steps + 0.008) / 1.008 pi / 2), beta at most 0.999 (Nichol and Dhariwal).
Schedule cosine_schedule(std::int64_t steps = 1000);
Schedule parse_schedule(std::string_view name, std::int64_t steps = 1000);  // "linear" or "cosine"

// `count` of the schedule's steps, evenly spread from the first to the last. Each keeps its alpha_bar and its time.
Schedule respaced(const Schedule& schedule, std::int64_t count);

}  // namespace mhla::diffusion
