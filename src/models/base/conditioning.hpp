// What a diffusion transformer knows besides the picture: positions, the time and the class.
#pragma once

#include <torch/torch.h>

#include "nn/grid.hpp"

namespace mhla::models {

// [1, N, C] in float32: the first half of the channels encodes the column, the second the row, as sines then cosines.
at::Tensor sine_positions(nn::Grid grid, std::int64_t dim);

// Times [B] as cosines and sines of 128 frequencies, then two linear layers.
class TimeEmbeddingImpl : public torch::nn::Module {
 public:
  static constexpr std::int64_t kFrequencies = 128;

  explicit TimeEmbeddingImpl(std::int64_t dim);

  at::Tensor forward(const at::Tensor& t);  // [B, C]

  torch::nn::Linear first, second;
};
TORCH_MODULE(TimeEmbedding);

// One vector per class, and one more for "no class".
class LabelEmbeddingImpl : public torch::nn::Module {
 public:
  LabelEmbeddingImpl(std::int64_t classes, std::int64_t dim)
      : table(register_module("embedding_table", torch::nn::Embedding(classes + 1, dim))) {}

  at::Tensor forward(const at::Tensor& y) { return table->forward(y); }

  torch::nn::Embedding table;
};
TORCH_MODULE(LabelEmbedding);

}  // namespace mhla::models
