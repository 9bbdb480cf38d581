// The noise levels that a solver walks through, from noise to data: x = alpha data + sigma noise.
#pragma once
#include <cstdint>
#include <vector>

#include "diffusion/schedule.hpp"

namespace mhla::diffusion {

struct Level {
  double alpha, sigma;
  double time;  // what the network is told
};
using Levels = std::vector<Level>;  // steps + 1 of them; the last is where sampling ends

// How `steps` of a schedule's times are chosen.
enum class Spacing : std::uint8_t {
  respaced,  // first and last time included (the DiT way), then data
  linspace,  // steps + 1 times from the last to 0, without 0, then data (diffusers)
  leading,   // multiples of the stride; ends at time 0, not at data (diffusers)
};
Levels noise_levels(const Schedule& schedule, std::int64_t steps, Spacing spacing = Spacing::respaced);

// Rectified flow: alpha = 1 - sigma, and shift s moves sigma to s sigma / (1 + (s - 1) sigma).
enum class FlowSpacing : std::uint8_t {
  whole_times,     // evenly spread from 1 downwards without 0; the network is told whole times (diffusers' solvers)
  to_shifted_end,  // from 1 to the shifted 1/1000, shifted again (diffusers' Euler)
};
Levels flow_levels(std::int64_t steps, double shift, FlowSpacing spacing = FlowSpacing::whole_times);

}  // namespace mhla::diffusion
