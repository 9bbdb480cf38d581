// A mean of values that come in clusters, with its standard error: values of one cluster, such as the tokens of a
// document, are not independent of each other.
#pragma once

#include <cstdint>
#include <vector>

namespace mhla::tasks {

struct MeanWithError {
  double mean = 0.0;
  double error = 0.0;  // standard error; NaN of fewer than two clusters
  std::int64_t values = 0, clusters = 0;
};

class ClusteredMean {
 public:
  // Values of a cluster come one after another.
  void add(std::int64_t cluster, double value);

  // The mean of all values. Its error is that of a ratio of two sums over clusters.
  MeanWithError result() const;

 private:
  struct Cluster {
    std::int64_t id;
    double sum, count;
  };
  std::vector<Cluster> clusters_;
};

}  // namespace mhla::tasks
