// The Frechet distance of two sets of features, each taken for a normal distribution:
//
//   |m_a - m_b|^2 + tr C_a + tr C_b - 2 tr (C_a C_b)^(1/2)
//
// with means m and covariances C. The last trace is the sum of the singular values of C_a^(1/2) C_b^(1/2), where the
// roots come from symmetric eigendecompositions: all numbers stay real. In float64.
#pragma once

#include <torch/torch.h>

namespace mhla::tasks {

struct FeatureMoments {
  at::Tensor mean, covariance;  // f64 [F] and [F, F] on the CPU
};

// features: [n, F]. Covariances are divided by n - 1; fewer than two rows are an Error.
FeatureMoments feature_moments(const at::Tensor& features);

double frechet_distance(const FeatureMoments& a, const FeatureMoments& b);

}  // namespace mhla::tasks
