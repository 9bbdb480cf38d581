// The neighbours of the operator on the CPU; arguments are checked already.
#pragma once

#include "mhla/neighbours.hpp"
#include "mhla/parallel.hpp"

namespace mhla::cpu {

void forward(const neighbours::RotaryFeatures& p, const neighbours::RotaryFeatures::Forward& args,
             const Parallel& parallel);
void forward(const neighbours::GatedNorm& p, const neighbours::GatedNorm::Forward& args, const Parallel& parallel);
void forward(const neighbours::Modulate& p, const neighbours::Modulate::Forward& args, const Parallel& parallel);
void backward(const neighbours::RotaryFeatures& p, const neighbours::RotaryFeatures::Backward& args,
              const Parallel& parallel);
void backward(const neighbours::GatedNorm& p, const neighbours::GatedNorm::Backward& args, const Parallel& parallel);
void backward(const neighbours::Modulate& p, const neighbours::Modulate::Backward& args, const Parallel& parallel);

}  // namespace mhla::cpu
