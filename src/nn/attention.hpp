// Attention layers of image models on tokens in raster order, [B, N, C] -> [B, N, C].
#pragma once

#include <torch/torch.h>

#include <string>
#include <string_view>

#include "mhla/partition.hpp"
#include "mhla/types.hpp"
#include "nn/block_mixing.hpp"
#include "nn/branch.hpp"
#include "nn/grid.hpp"
#include "nn/norm.hpp"
#include "nn/qkv_features.hpp"

namespace mhla::nn {

enum class AttentionKind { softmax, linear, mhla };
std::string_view name(AttentionKind value);
AttentionKind parse_attention_kind(std::string_view text);

class Attention : public torch::nn::Module {
 public:
  virtual Branch forward(const at::Tensor& x, Grid grid) = 0;

  // How much each token looks at each other one, [B, H, N, N]; rows sum to one, or to zero
  // where a query has no feature in common with any key. O(N^2), for looking at.
  virtual at::Tensor weights(const at::Tensor& x, Grid grid) = 0;

  // The parameter [M, M, 1, 1]; undefined without one.
  virtual at::Tensor mixing() { return {}; }
};

// The matrices behind weights(). q, k: [B, N, H, D], features for the second; mixing: [M, M] or
// [B, H, M, M]. In double, so that their rank can be told.
at::Tensor softmax_weights(const at::Tensor& q, const at::Tensor& k);
at::Tensor feature_weights(const at::Tensor& q, const at::Tensor& k, const at::Tensor& mixing,
                           const Partition& partition);

// Softmax attention of a plain vision transformer, under timm's names: qkv with bias, proj.
class PlainAttention : public Attention {
 public:
  PlainAttention(std::int64_t dim, std::int64_t heads);

  Branch forward(const at::Tensor& x, Grid grid) override;
  at::Tensor weights(const at::Tensor& x, Grid grid) override;

  const std::int64_t heads;
  torch::nn::Linear qkv, proj;
};

struct GridAttentionOptions {
  std::int64_t dim = 0, heads = 0;
  AttentionKind kind = AttentionKind::mhla;
  Partition partition = Partition::grid({1, 1}, {1, 1});  // of the grid it is made for
  bool inner_norm = false;                                // a LayerNorm of its own (eps 1e-5) before the projections
  bool qkv_bias = false;
  bool qk_norm = true;         // RMSNorm of q and k over all channels
  std::int64_t lepe_side = 5;  // local positions: a depthwise convolution of v, added to the output; 0: none
  bool gate = false;           // silu(a linear layer of the input) multiplies the attention's output
  double dropout = 0.0;        // of the layer's output, in training
  Normalizer normalizer = Normalizer::paper;
  double norm_eps = 1e-6;    // of the RMSNorm of q and k
  double feature_eps = 0.0;  // added to relu(q) and relu(k)
  at::Tensor mixing{};       // initial, [M, M]
  bool mixing_frozen = false;
  bool mixing_by_input = false;  // see input_mixing.hpp
};

// Softmax, linear attention or MHLA between the same projections, under the authors' names: to_qkv, q_norm, k_norm,
// lepe, to_out; and to_gate, which is ours.
class GridAttention : public Attention {
 public:
  explicit GridAttention(const GridAttentionOptions& options);

  Branch forward(const at::Tensor& x, Grid grid) override;
  at::Tensor weights(const at::Tensor& x, Grid grid) override;
  at::Tensor mixing() override;

  const GridAttentionOptions options;

 private:
  Qkv projected(const at::Tensor& input);
  at::Tensor input_of(const at::Tensor& x) { return norm_ ? norm_->forward(x) : x; }

  Norm norm_ = nullptr, q_norm_ = nullptr, k_norm_ = nullptr;
  torch::nn::Linear to_qkv_ = nullptr, gate_ = nullptr, out_ = nullptr;
  BlockMixing mixing_ = nullptr;  // none for softmax
  torch::nn::Conv2d lepe_ = nullptr;
};

}  // namespace mhla::nn
