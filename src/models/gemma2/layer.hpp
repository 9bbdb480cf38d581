// One layer of Gemma-2: attention and a gated MLP, each between two norms.
#pragma once

#include <torch/torch.h>

#include "mhla/fused_torch.hpp"

namespace mhla::models {
struct Gemma2Options;
}

namespace mhla::models::gemma2 {

// RMSNorm whose weights are stored less one.
class NormImpl : public torch::nn::Module {
 public:
  NormImpl(std::int64_t dim, double eps) : eps(eps), weight(register_parameter("weight", torch::zeros(dim))) {}
  at::Tensor forward(const at::Tensor& x);

  const double eps;
  at::Tensor weight;
};
TORCH_MODULE(Norm);

// What all layers of one call share.
struct Call {
  fused::RotaryTables rotary;
  at::Tensor all, window;  // what is added to the scores: of layers that see all earlier tokens, and of the others
};

// Grouped heads; scores between -cap and cap, by a hyperbolic tangent.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const Gemma2Options& options);
  at::Tensor forward(const at::Tensor& x, const Call& call, const at::Tensor& bias);

 private:
  at::Tensor heads(const at::Tensor& x, std::int64_t count, const Call* rotate) const;

  const std::int64_t heads_, kv_heads_;
  const double scale_, cap_;
  torch::nn::Linear q_, k_, v_, o_;
};
TORCH_MODULE(Attention);

class Layer : public torch::nn::Module {
 public:
  Layer(const Gemma2Options& options, bool windowed);
  at::Tensor forward(const at::Tensor& x, const Call& call);

 private:
  at::Tensor mlp(const at::Tensor& x);

  const bool windowed_;
  Attention attention_;
  torch::nn::Linear gate_, up_, down_;
  Norm before_attention_, after_attention_, before_mlp_, after_mlp_;
};

}  // namespace mhla::models::gemma2
