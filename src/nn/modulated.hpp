// The residual stream of a diffusion transformer: norms that a condition scales and shifts, branches that it gates. In
// one pass over memory where there is a kernel for it.
#pragma once

#include <torch/torch.h>

#include <tuple>
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

// x + gate branch + gate branch + ..., where a branch is added together with the norm that follows it.
class GatedStream {
 public:
  explicit GatedStream(at::Tensor x) : x_(std::move(x)) {}

  void add(const Branch& branch, const at::Tensor& gate) {
    x_ = value();
    branch_ = branch, gate_ = gate;
  }

  at::Tensor modulated(const Modulation& modulation) {
    if (!branch_.values.defined()) return nn::modulated(x_, modulation);
    at::Tensor y;
    std::tie(x_, y) = add_modulated(x_, branch_, gate_, modulation);
    branch_ = {};
    return y;
  }

  at::Tensor value() {
    if (branch_.values.defined()) x_ = add_gated(x_, branch_, gate_);
    branch_ = {};
    return x_;
  }

 private:
  at::Tensor x_;
  Branch branch_;  // not added yet; its values are undefined where there is none
  at::Tensor gate_;
};

}  // namespace mhla::nn
