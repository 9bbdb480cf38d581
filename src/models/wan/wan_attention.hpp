// Self attention between the tokens of a video, and cross attention to a text, under Wan's names: q, k, v, o, norm_q,
// norm_k.
#pragma once

#include <torch/torch.h>

#include "mhla/fused_torch.hpp"
#include "mhla/partition.hpp"
#include "mhla/types.hpp"
#include "models/wan/video_grid.hpp"
#include "models/wan/video_mixing.hpp"
#include "nn/attention.hpp"
#include "nn/branch.hpp"
#include "nn/norm.hpp"

namespace mhla::models {

enum class OutputNorm { none, head, channels, projected };
OutputNorm parse_output_norm(std::string_view text);

struct WanAttentionOptions {
  std::int64_t dim = 0, heads = 0;
  nn::AttentionKind kind = nn::AttentionKind::softmax;
  // Of mhla.
  Partition partition = Partition::grid({1, 1, 1}, {1, 1, 1});
  at::Tensor mixing{};  // initial, [M, M]
  bool mixing_frozen = false;
  bool gate = false, lepe = false;
  Normalizer normalizer = Normalizer::none;
  OutputNorm output_norm = OutputNorm::head;
};

// Four linear layers with bias, and RMSNorm of q and k over all channels.
class WanProjections : public torch::nn::Module {
 public:
  WanProjections(std::int64_t dim, std::int64_t heads);

  const std::int64_t heads;
  torch::nn::Linear q, k, v, o;
  nn::Norm norm_q, norm_k;

 protected:
  at::Tensor by_head(const at::Tensor& x) const { return x.unflatten(-1, {heads, -1}); }
};

class WanSelfAttention : public WanProjections {
 public:
  explicit WanSelfAttention(const WanAttentionOptions& options);

  // x: [B, N, C]. A softmax layer rotates normalised q and k; the others rotate their relu, and take the denominator
  // from what was not rotated.
  nn::Branch forward(const at::Tensor& x, VideoGrid grid, const fused::RotaryTables& rotary);

  at::Tensor mixing() { return mixing_ ? mixing_->weight : at::Tensor(); }  // [M, M, 1, 1]; undefined without one

  const WanAttentionOptions options;

 private:
  at::Tensor linear(const at::Tensor& x, const fused::RotaryTables& rotary);
  nn::Branch mixed(const at::Tensor& x, VideoGrid grid, const fused::RotaryTables& rotary);

  VideoMixing mixing_ = nullptr;
  nn::Norm g_norm_ = nullptr, out_norm_ = nullptr;
  torch::nn::Linear g_ = nullptr;
  torch::nn::Conv3d lepe_ = nullptr;
};

// What cross attention takes from a text, the same at all times.
struct WanKeysValues {
  at::Tensor k, v;  // [B, T, H, D]
};

class WanCrossAttention : public WanProjections {
 public:
  using WanProjections::WanProjections;

  WanKeysValues keys_values(const at::Tensor& text);  // [B, T, C]
  nn::Branch forward(const at::Tensor& x, const WanKeysValues& text);
};

}  // namespace mhla::models
