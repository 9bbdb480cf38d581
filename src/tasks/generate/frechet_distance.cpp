// Means, covariances and the distance of two normal distributions.
#include "tasks/generate/frechet_distance.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mhla/types.hpp"

namespace mhla::tasks {
namespace {

// Of a symmetric matrix without negative eigenvalues. What rounding leaves of an eigenvalue of zero is set to zero: its
// root would be a large error.
at::Tensor symmetric_root(const at::Tensor& matrix) {
  const auto [values, vectors] = at::linalg_eigh(matrix);
  const at::Tensor rounding =
      values.abs().max() * (static_cast<double>(matrix.size(0)) * std::numeric_limits<double>::epsilon());
  return (vectors * at::where(values > rounding, values, at::zeros_like(values)).sqrt()).mm(vectors.t());
}

}  // namespace

FeatureMoments feature_moments(const at::Tensor& features) {
  if (features.dim() != 2) throw Error("features has shape " + c10::str(features.sizes()) + "; it must be [n, F]");
  if (features.size(0) < 2)
    throw Error(fmt::format("{} pictures; a Frechet distance needs at least 2", features.size(0)));
  const at::Tensor x = features.to(at::kCPU, at::kDouble);
  const at::Tensor mean = x.mean(0), centred = x - mean;
  return {mean, centred.t().mm(centred) / static_cast<double>(x.size(0) - 1)};
}

double frechet_distance(const FeatureMoments& a, const FeatureMoments& b) {
  if (a.mean.size(0) != b.mean.size(0))
    throw Error(
        fmt::format("features have {} and {} numbers; both sets must have as many", a.mean.size(0), b.mean.size(0)));
  const at::Tensor root_of_product =
      at::linalg_svdvals(symmetric_root(a.covariance).mm(symmetric_root(b.covariance))).sum();
  const at::Tensor distance =
      (a.mean - b.mean).square().sum() + a.covariance.trace() + b.covariance.trace() - 2.0 * root_of_product;
  return std::max(0.0, distance.item<double>());
}

}  // namespace mhla::tasks
