// Errors whose message is put together only when it is needed.
#pragma once

#include <cmath>
#include <string>
#include <type_traits>

#include "mhla/partition.hpp"
#include "mhla/types.hpp"

namespace mhla {

template <typename Part>
std::string as_text(const Part& part) {
  if constexpr (std::is_arithmetic_v<Part>)
    return std::to_string(part);
  else if constexpr (std::is_same_v<Part, Partition>)
    return part.describe();
  else
    return std::string(part);
}

template <typename... Parts>
void require(bool ok, const Parts&... parts) {
  if (!ok) throw Error((as_text(parts) + ...));
}

inline void require_finite(const char* name, double value) { require(std::isfinite(value), name, " is not finite"); }

}  // namespace mhla
