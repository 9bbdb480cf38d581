// MHLA for LibTorch programs: a differentiable function and a module. Link mhla::torch.
//
//   auto partition = mhla::Partition::grid({16, 16}, {4, 4});
//   auto mixing = mhla::mixing_tensor(partition, mhla::MixingInit::paper);
//   auto o = mhla::attention(q, k, v, mixing, {.partition = partition});   // q, k, v, o: [batch, tokens, heads, width]
#pragma once

#include <torch/torch.h>

#include <optional>
#include <span>
#include <tuple>

#include "mhla/attention.hpp"
#include "mhla/mixing.hpp"
#include "mhla/partition.hpp"

namespace mhla {

struct AttentionOptions {
  Partition partition;  // of the N tokens of one batch row
  FeatureMap feature_map = FeatureMap::relu;
  Normalizer normalizer = Normalizer::paper;
  Masking masking = Masking::none;
  Algorithm algorithm = Algorithm::automatic;
  double scale = 1.0;        // multiplies phi(q)
  double eps = 1e-6;         // added to the denominator
  double feature_eps = 0.0;  // added to phi(q) and phi(k)

  std::optional<at::Tensor> q_den = std::nullopt, k_den = std::nullopt;  // other q, k for the denominator
  std::optional<at::Tensor> cu_seqlens = std::nullopt;  // packed sequences: offsets, int64 [sequences + 1]

  // Causal calls: summaries of the tokens already seen, S [B, H, blocks, Dk, Dv] and z [B, H, blocks, Dk].
  std::optional<at::Tensor> initial_S = std::nullopt, initial_z = std::nullopt;
  std::int64_t initial_tokens = 0;
};

struct AttentionResult {
  at::Tensor o;  // [B, N, H, Dv]
  at::Tensor S;  // [sequences, kv heads, blocks, Dk, Dv], accumulation type
  at::Tensor z;  // [sequences, kv heads, blocks, Dk]; empty without a normaliser
};

// q: [B, N, H, Dk], k: [B, N, Hkv, Dk], v: [B, N, Hkv, Dv], mixing: [M, M], [H, M, M] or [B, H, M, M], float32,
// float64, bfloat16 or float16 whatever q is.
// Differentiable once in every tensor; the same as torch.ops.mhla.attention.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& mixing,
                     const AttentionOptions& options);

// The same with the summaries of all blocks, to go on from.
AttentionResult attention_with_state(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const at::Tensor& mixing, const AttentionOptions& options);

// Mixing matrices as tensors, [M, M]; resizing keeps a leading head axis and the dtype.
at::Tensor mixing_tensor(const Partition& partition, MixingInit init, const MixingInitOptions& options = {},
                         at::ScalarType dtype = at::kFloat);
at::Tensor resize_mixing(const at::Tensor& mixing, const Partition& from, const Partition& to);

// In place, outside of autograd: clamps to [low, high], then optionally divides each row by its sum.
void project_mixing_(const at::Tensor& mixing, bool normalize_rows = false, double low = 0.0, double high = 1.0);

namespace nn {

struct MultiHeadLinearAttentionOptions {
  MultiHeadLinearAttentionOptions(std::int64_t dim, std::int64_t heads, Partition partition)
      : dim_(dim), heads_(heads), partition_(partition) {}

  TORCH_ARG(std::int64_t, dim);
  TORCH_ARG(std::int64_t, heads);
  TORCH_ARG(Partition, partition);
  TORCH_ARG(FeatureMap, feature_map) = FeatureMap::relu;
  TORCH_ARG(Normalizer, normalizer) = Normalizer::paper;
  TORCH_ARG(Masking, masking) = Masking::none;
  TORCH_ARG(MixingInit, mixing_init) = MixingInit::paper;
  TORCH_ARG(bool, mixing_per_head) = false;
  TORCH_ARG(bool, qkv_bias) = false;
  TORCH_ARG(bool, qk_norm) = false;  // RMSNorm of q and k over all channels, before the heads are split
  TORCH_ARG(double, scale) = 1.0;
  TORCH_ARG(double, eps) = 1e-6;
  TORCH_ARG(double, feature_eps) = 0.0;
};

// A drop-in attention layer: projections, MHLA with a learned mixing matrix, output projection. [B, N, C] -> [B, N, C].
// N is the partition's number of tokens; with causal masking it may be less.
class MultiHeadLinearAttentionImpl : public torch::nn::Cloneable<MultiHeadLinearAttentionImpl> {
 public:
  explicit MultiHeadLinearAttentionImpl(const MultiHeadLinearAttentionOptions& options);

  void reset() override;
  at::Tensor forward(const at::Tensor& x);

  // Brings the mixing matrix back to [0, 1]; call it after each optimiser step.
  void project_(bool normalize_rows = false);

  MultiHeadLinearAttentionOptions options;
  torch::nn::Linear qkv = nullptr, proj = nullptr;
  at::Tensor mixing;          // [M, M] or [H, M, M]
  at::Tensor q_norm, k_norm;  // gains [C]; undefined without qk_norm
};
TORCH_MODULE(MultiHeadLinearAttention);

}  // namespace nn
}  // namespace mhla
