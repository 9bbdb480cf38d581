// The residual stream of a pre-norm transformer, x + branch + branch + ... What is added is added together with the
// norm that follows it, in one pass over memory where there is a kernel for it.
#pragma once

#include <torch/torch.h>

#include <utility>

#include "nn/branch.hpp"
#include "nn/norm.hpp"

namespace mhla::nn {

class Residual {
 public:
  explicit Residual(at::Tensor x) : x_(std::move(x)) {}

  // factors: of the samples, [B]; undefined: 1.
  void add(const Branch& branch, const at::Tensor& factors = {});

  // The norm of the stream, in the type that matrix products want.
  at::Tensor normed(NormImpl& norm);
  at::Tensor normed(Norm& norm) { return normed(*norm); }

  at::Tensor value();

 private:
  at::Tensor x_;
  Branch branch_;  // not added yet; its values are undefined where there is none
  at::Tensor factors_;
};

}  // namespace mhla::nn
