// The neighbours of the operator on CUDA; arguments are checked already. Everything is enqueued on args.run.stream of
// the current device.
#pragma once

#include "mhla/neighbours.hpp"

namespace mhla::cuda {

void forward(const neighbours::RotaryFeatures& p, const neighbours::RotaryFeatures::Forward& args);
void forward(const neighbours::GatedNorm& p, const neighbours::GatedNorm::Forward& args);
void forward(const neighbours::Modulate& p, const neighbours::Modulate::Forward& args);
void backward(const neighbours::RotaryFeatures& p, const neighbours::RotaryFeatures::Backward& args);
void backward(const neighbours::GatedNorm& p, const neighbours::GatedNorm::Backward& args);
void backward(const neighbours::Modulate& p, const neighbours::Modulate::Backward& args);

}  // namespace mhla::cuda
