// With sums s_k of n_k values in cluster k of K and the mean m: the variance of m is K / (K - 1) sum (s_k - m n_k)^2 /
// (sum n_k)^2.
#include "tasks/language/clustered_mean.hpp"

#include <cmath>
#include <limits>

namespace mhla::tasks {

void ClusteredMean::add(std::int64_t cluster, double value) {
  if (clusters_.empty() || clusters_.back().id != cluster) clusters_.push_back({cluster, 0.0, 0.0});
  clusters_.back().sum += value;
  clusters_.back().count += 1.0;
}

MeanWithError ClusteredMean::result() const {
  double sum = 0.0, count = 0.0, squares = 0.0;
  for (const Cluster& cluster : clusters_) {
    sum += cluster.sum;
    count += cluster.count;
  }
  const double mean = count == 0.0 ? std::numeric_limits<double>::quiet_NaN() : sum / count;
  for (const Cluster& cluster : clusters_) {
    const double difference = cluster.sum - mean * cluster.count;
    squares += difference * difference;
  }
  const auto number = static_cast<double>(clusters_.size());
  return {.mean = mean,
          .error = clusters_.size() < 2 ? std::numeric_limits<double>::quiet_NaN()
                                        : std::sqrt(squares * number / (number - 1.0)) / count,
          .values = static_cast<std::int64_t>(count),
          .clusters = std::ssize(clusters_)};
}

}  // namespace mhla::tasks
