// Classifier-free guidance.
#include "diffusion/guidance.hpp"

#include <fmt/format.h>

#include <cmath>
#include <stdexcept>

namespace mhla::diffusion {

void Guidance::check() const {
  if (!std::isfinite(scale) || scale < 0.0)
    throw std::invalid_argument(fmt::format("guidance scale is {}; it must be a number of at least 0", scale));
  if (!(from >= 0.0 && from <= to && to <= 1.0))
    throw std::invalid_argument(
        fmt::format("guidance interval is {} to {}; it must be two numbers in order, from 0 to 1", from, to));
}

bool Guidance::acts_at(double time, double largest_time) const {
  return scale != 1.0 && time >= from * largest_time && time <= to * largest_time;
}

}  // namespace mhla::diffusion
