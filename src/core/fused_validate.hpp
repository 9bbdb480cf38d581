// Checks of what callers of the fused operators hand in; each throws an Error that names the argument.
#pragma once

#include <cmath>

#include "core/require.hpp"
#include "mhla/fused.hpp"

namespace mhla::fused {

// Also for callers that have no numbers to compute with.
inline void require_eps(const char* name, double value) {
  require(std::isfinite(value) && value >= 0.0, name, " is ", value, "; it must be finite and not negative");
}

void validate(const Rotary& rotary);
void validate_table(const Rotary& rotary, double theta, std::int64_t offset, DType dtype, const void* cos,
                    const void* sin);
void validate(const RotaryFeatures& p);  // its sizes
void validate(const GatedNorm& p);
void validate(const Modulate& p);
void validate(const RotaryFeatures& p, const RotaryFeatures::Forward& args);
void validate(const RotaryFeatures& p, const RotaryFeatures::Backward& args);
void validate(const GatedNorm& p, const GatedNorm::Forward& args);
void validate(const GatedNorm& p, const GatedNorm::Backward& args);
void validate(const Modulate& p, const Modulate::Forward& args);
void validate(const Modulate& p, const Modulate::Backward& args);

}  // namespace mhla::fused
