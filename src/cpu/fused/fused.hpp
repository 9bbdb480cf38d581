// The fused operators on the CPU; arguments are checked already.
#pragma once

#include "mhla/fused.hpp"
#include "mhla/parallel.hpp"

namespace mhla::cpu {

void forward(const fused::RotaryFeatures& p, const fused::RotaryFeatures::Forward& args, const Parallel& parallel);
void forward(const fused::GatedNorm& p, const fused::GatedNorm::Forward& args, const Parallel& parallel);
void forward(const fused::Modulate& p, const fused::Modulate::Forward& args, const Parallel& parallel);
void backward(const fused::RotaryFeatures& p, const fused::RotaryFeatures::Backward& args, const Parallel& parallel);
void backward(const fused::GatedNorm& p, const fused::GatedNorm::Backward& args, const Parallel& parallel);
void backward(const fused::Modulate& p, const fused::Modulate::Backward& args, const Parallel& parallel);

}  // namespace mhla::cpu
