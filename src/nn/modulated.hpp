// The residual stream of a diffusion transformer: norms that a condition scales and shifts, branches that it gates. In
// one pass over memory where there is a kernel for it.
#pragma once

#include <torch/torch.h>

#include <utility>

#include "nn/branch.hpp"

namespace mhla::nn {

// Of each batch row, [B, C].
struct Modulation {
  at::Tensor scale, shift;
};

// LayerNorm(x) (1 + scale) + shift, without weights, in the type that matrix products want. x: [B, N, C].
at::Tensor modulated(const at::Tensor& x, const Modulation& modulation);

// x + gate branch. gate: [B, C].
at::Tensor add_gated(const at::Tensor& x, const Branch& branch, const at::Tensor& gate);

// The second, and the first of that.
std::pair<at::Tensor, at::Tensor> add_modulated(const at::Tensor& x, const Branch& branch, const at::Tensor& gate,
                                                const Modulation& modulation);

}  // namespace mhla::nn
