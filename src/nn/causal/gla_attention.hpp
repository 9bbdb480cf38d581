// Gated linear attention: a state that forgets as the input says.
#pragma once

#include "nn/causal/gated_projections.hpp"

namespace mhla::nn {

class CausalGla : public GatedProjections {
 public:
  explicit CausalGla(const CausalOptions& options);

  LayerState new_state(std::int64_t batch, const at::TensorOptions& like) const override;

 protected:
  at::Tensor mixed(const Heads& heads, const at::Tensor& x, const Line& line, LayerState* state) override;

 private:
  torch::nn::Linear decay_in_, decay_out_;  // gk_proj: of low rank
};

}  // namespace mhla::nn
