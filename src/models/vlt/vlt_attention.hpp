// Attention of the vision linear transformer: q, k, v and a gate o from one projection, positions by rotation.
#pragma once

#include <torch/torch.h>

#include "mhla/fused_torch.hpp"
#include "nn/attention.hpp"
#include "nn/block_mixing.hpp"
#include "nn/grid.hpp"

namespace mhla::models {

// Rotations of one stage. The first half of a head turns with the row, the second with the column; of P pairs in a
// half, pair j turns by position * 10000^(-j / (P - 1)).
class VltRotaryImpl : public torch::nn::Module {
 public:
  explicit VltRotaryImpl(std::int64_t head_width);

  fused::RotaryTables tables(nn::Grid grid);

 private:
  at::Tensor angle_;  // [head_width / 2], each twice
};
TORCH_MODULE(VltRotary);

struct VltAttentionOptions {
  std::int64_t dim = 0, heads = 0;
  nn::AttentionKind kind = nn::AttentionKind::mhla;
  Partition partition = Partition::grid({1, 1}, {1, 1});  // of the grid it is made for
  bool lepe = true;
  at::Tensor mixing{};  // initial, [M, M]
  bool mixing_frozen = false;
};

// softmax: rotated q and k. linear: RALA, features elu + 1, keys weighted by how well they answer the mean query; the
// numerator has rotated features, the denominator plain ones. mhla: the same with blocks in place of the key weights.
class VltAttention : public torch::nn::Module {
 public:
  explicit VltAttention(const VltAttentionOptions& options);

  at::Tensor forward(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary);

  // As nn::Attention::weights(); of linear attention and MHLA by the plain features, whose weights are positive.
  at::Tensor weights(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary);

  at::Tensor mixing() { return mixing_ ? mixing_->weight : at::Tensor(); }

  const VltAttentionOptions options;

 private:
  struct Projected {
    at::Tensor q, k, v, gate;     // [B, N, H, D], q and k rotated; gate [B, N, C]
    at::Tensor q_plain, k_plain;  // features before rotation; not for softmax
  };
  Projected project(const at::Tensor& x, const fused::RotaryTables& rotary);

  torch::nn::Conv2d qkvo_, lepe_ = nullptr, proj_;
  nn::BlockMixing mixing_ = nullptr;  // none for softmax
};

}  // namespace mhla::models
