// Rank and entropy of a trained classifier's attention on given images (the paper's Figure 3b).
#pragma once

#include <torch/torch.h>

#include <vector>

#include "analysis/attention_matrix.hpp"
#include "models/base/classifier.hpp"

namespace mhla::models {

// Means over images and heads.
struct LayerStatistics {
  std::int64_t layer = 0;
  std::int64_t tokens = 0;  // N: the matrices are N x N
  double rank = 0.0, effective_rank = 0.0;
  double entropy = 0.0;  // nats
  double sparsity = 0.0;
};

// One entry per layer. images: [B, 3, H, W], normalised, on the model's device. A singular value decomposition of an
// N x N matrix per image, head and layer: a few images are enough. Leaves the model in the mode it was in.
std::vector<LayerStatistics> attention_statistics(Classifier& classifier, const at::Tensor& images);

// Means over the layers.
LayerStatistics mean_over_layers(const std::vector<LayerStatistics>& layers);

}  // namespace mhla::models
