// What causal layers other than softmax have around their token mixing, under the authors' names: projections, short
// convolutions, a norm of each head's output, an output gate.
#pragma once

#include "nn/causal/attention.hpp"
#include "nn/causal/short_convolution.hpp"
#include "nn/norm.hpp"

namespace mhla::nn {

class GatedProjections : public CausalAttention {
 public:
  explicit GatedProjections(const CausalOptions& options);

  at::Tensor forward(const at::Tensor& x, const Line& line, LayerState* state) override;
  LayerState new_state(std::int64_t batch, const at::TensorOptions& like) const override;

 protected:
  struct Heads {
    at::Tensor q, k, v;  // [B, T, H, Dk], [B, T, Hkv, Dk], [B, T, Hkv, Dv]
  };
  virtual at::Tensor mixed(const Heads& heads, const at::Tensor& x, const Line& line, LayerState* state) = 0;

 private:
  torch::nn::Linear q_proj_, k_proj_, v_proj_, g_proj_ = nullptr, o_proj_ = nullptr;
  ShortConvolution q_conv_ = nullptr, k_conv_ = nullptr, v_conv_ = nullptr;
  Norm norm_ = nullptr;
};

}  // namespace mhla::nn
