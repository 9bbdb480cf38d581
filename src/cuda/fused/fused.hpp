// The fused operators on CUDA; arguments are checked already. Everything is enqueued on args.run.stream of
// the current device.
#pragma once

#include "mhla/fused.hpp"

namespace mhla::cuda {

void forward(const fused::RotaryFeatures& p, const fused::RotaryFeatures::Forward& args);
void forward(const fused::GatedNorm& p, const fused::GatedNorm::Forward& args);
void forward(const fused::Modulate& p, const fused::Modulate::Forward& args);
void backward(const fused::RotaryFeatures& p, const fused::RotaryFeatures::Backward& args);
void backward(const fused::GatedNorm& p, const fused::GatedNorm::Backward& args);
void backward(const fused::Modulate& p, const fused::Modulate::Backward& args);

}  // namespace mhla::cuda
