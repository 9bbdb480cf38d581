// One layer of a language model: attention and a gated MLP, each after a norm.
#pragma once

#include <torch/torch.h>

#include <memory>

#include "nn/causal/attention.hpp"
#include "nn/mlp.hpp"
#include "nn/norm.hpp"
#include "nn/residual.hpp"

namespace mhla::models {

class LmBlock : public torch::nn::Module {
 public:
  LmBlock(const nn::CausalOptions& attention, std::int64_t mlp_width)
      : attn_norm(register_module("attn_norm", nn::Norm(nn::NormKind::rms, attention.dim, attention.norm_eps))),
        attn(register_module("attn", nn::make_causal_attention(attention))),
        mlp_norm(register_module("mlp_norm", nn::Norm(nn::NormKind::rms, attention.dim, attention.norm_eps))),
        mlp(register_module("mlp", nn::GatedMlp(attention.dim, mlp_width))) {}

  // x: [B, T, C]
  void forward(nn::Residual& x, const nn::Line& line, nn::LayerState* state = nullptr) {
    x.add({attn->forward(x.normed(attn_norm), line, state)});
    x.add({mlp->forward(x.normed(mlp_norm))});
  }

  nn::Norm attn_norm;
  std::shared_ptr<nn::CausalAttention> attn;
  nn::Norm mlp_norm;
  nn::GatedMlp mlp;
};

}  // namespace mhla::models
