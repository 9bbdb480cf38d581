// How far one tensor is from another, relative to the other's norm.
#pragma once

#include <torch/torch.h>

namespace mhla::testing {

inline double relative_error(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).to(at::kDouble).norm() / b.to(at::kDouble).norm()).item<double>();
}

}  // namespace mhla::testing
