// Names under which another program stores the toy's layers.
#pragma once

#include <array>

#include "models/base/model.hpp"

namespace mhla::models::testing {

inline constexpr std::array kToyWeightNames = {SameLayer{"wte.", "embed."}, SameLayer{".ln.", ".norm."}};

}  // namespace mhla::models::testing
