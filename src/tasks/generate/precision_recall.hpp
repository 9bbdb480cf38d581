// Precision and recall of generated pictures in a space of features (Kynkaanniemi et al., 2019): the manifold of a set
// is the union of balls around its points, each reaching to the point's k-th nearest neighbour in the set.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace mhla::tasks {

struct PrecisionRecall {
  double precision = 0;  // share of generated points on the real manifold
  double recall = 0;     // share of real points on the generated manifold
};

inline constexpr std::int64_t kNeighbours = 3;

// real: [n, F], generated: [m, F] on one device; each set needs more than kNeighbours points. Distances are taken for
// `block` points at a time, so that memory is block times n or m.
PrecisionRecall precision_recall(const at::Tensor& real, const at::Tensor& generated, std::int64_t block = 1024);

}  // namespace mhla::tasks
