// One layer of the umT5 encoder: attention with learned biases of relative positions, and a gated MLP, each after an
// RMSNorm. Without other biases, under Wan's names.
#pragma once

#include <torch/torch.h>

#include "nn/norm.hpp"

namespace mhla::models {

inline constexpr double kUmt5NormEps = 1e-6;

struct Umt5Options {
  std::int64_t vocabulary = 256384;
  std::int64_t width = 4096, attention_width = 4096, mlp_width = 10240;
  std::int64_t heads = 64, depth = 24;
  std::int64_t buckets = 32;  // of relative positions: half for later keys, half for earlier ones

  bool operator==(const Umt5Options&) const = default;
};

class Umt5BlockImpl : public torch::nn::Module {
 public:
  explicit Umt5BlockImpl(const Umt5Options& options);

  // x: [B, T, C]; buckets: those of position_buckets, [T, T]; unseen: bool [B, 1, 1, T], true where the text is filled
  // up.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& buckets, const at::Tensor& unseen);

 private:
  at::Tensor attention(const at::Tensor& x, const at::Tensor& buckets, const at::Tensor& unseen);

  const std::int64_t heads_;
  nn::Norm norm1_, norm2_;
  torch::nn::Linear q_, k_, v_, o_, gate_, fc1_, fc2_;
  torch::nn::Embedding positions_;  // [buckets, heads]
};
TORCH_MODULE(Umt5Block);

// The bucket of every key seen from every query, int64 [tokens, tokens]: near distances one by one, further ones in
// growing steps up to 128 tokens.
at::Tensor position_buckets(std::int64_t tokens, std::int64_t buckets, at::Device device);

}  // namespace mhla::models
