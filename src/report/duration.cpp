// Seconds, minutes, hours.
#include "report/duration.hpp"

#include <fmt/format.h>

#include <cmath>

namespace mhla::report {

std::string duration(double seconds) {
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
}

}  // namespace mhla::report
