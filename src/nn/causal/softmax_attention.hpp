// Softmax attention as Llama has it: rotary queries and keys, grouped heads, no bias. Its state is the cache of keys
// and values.
#pragma once

#include "nn/causal/attention.hpp"

namespace mhla::nn {

class CausalSoftmax : public CausalAttention {
 public:
  explicit CausalSoftmax(const CausalOptions& options);

  at::Tensor forward(const at::Tensor& x, const Line& line, LayerState* state) override;
  LayerState new_state(std::int64_t batch, const at::TensorOptions& like) const override;
  void reserve(LayerState& state, std::int64_t tokens) const override;
  std::int64_t room(const LayerState& state) const override;

 private:
  torch::nn::Linear q_proj_, k_proj_, v_proj_, o_proj_;
};

}  // namespace mhla::nn
