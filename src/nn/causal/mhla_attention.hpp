// MHLA over the blocks of a line, and linear attention, which is MHLA with equal weights.
#pragma once

#include "mhla/decode.hpp"
#include "nn/causal/gated_projections.hpp"

namespace mhla::nn {

class CausalMhla : public GatedProjections {
 public:
  explicit CausalMhla(const CausalOptions& options);

  LayerState new_state(std::int64_t batch, const at::TensorOptions& like) const override;
  void reserve(LayerState& state, std::int64_t tokens) const override;
  std::int64_t room(const LayerState& state) const override;
  void restored(LayerState& state, const at::Tensor& seen) const override;
  at::Tensor mixing() override { return mixing_; }
  void initialise() override;

 protected:
  at::Tensor mixed(const Heads& heads, const at::Tensor& x, const Line& line, LayerState* state) override;

 private:
  at::Tensor matrix() const;     // [M, M]; of linear attention [1, 1]
  BeyondTrained beyond() const;  // what applies after its M blocks
  DecodeConfig decode_config() const;
  at::Tensor features(CausalMapLayer& map, const at::Tensor& x, const Line& line);
  double scale() const;

  CausalMapLayer q_map_, k_map_;
  at::Tensor mixing_;
};

}  // namespace mhla::nn
