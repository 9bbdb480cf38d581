// From the stream to heads, and from heads to the stream.
#include "nn/causal/gated_projections.hpp"

#include "mhla/fused_torch.hpp"
#include "nn/causal/linear.hpp"

namespace mhla::nn {

GatedProjections::GatedProjections(const CausalOptions& options)
    : CausalAttention(options),
      q_proj_(register_module("q_proj", without_bias(options.dim, options.heads * options.key_width))),
      k_proj_(register_module("k_proj", without_bias(options.dim, options.kv_heads * options.key_width))),
      v_proj_(register_module("v_proj", without_bias(options.dim, options.kv_heads * options.value_width))) {
  if (options.output_gate)
    g_proj_ = register_module("g_proj", without_bias(options.dim, options.heads * options.value_width));
  o_proj_ = register_module("o_proj", without_bias(options.heads * options.value_width, options.dim));
  if (options.short_convolution) {
    const auto convolution = [this](const char* name, const torch::nn::Linear& projection) {
      return register_module(name, ShortConvolution(projection->options.out_features()));
    };
    q_conv_ = convolution("q_conv1d", q_proj_);
    k_conv_ = convolution("k_conv1d", k_proj_);
    v_conv_ = convolution("v_conv1d", v_proj_);
  }
  norm_ = register_module(options.output_gate ? "g_norm_swish_gate" : "g_norm",
                          Norm(NormKind::rms, options.value_width, options.norm_eps));
}

LayerState GatedProjections::new_state(std::int64_t batch, const at::TensorOptions& like) const {
  LayerState state;
  if (!options.short_convolution) return state;
  const auto before = [&](std::int64_t channels) {
    return at::zeros({batch, ShortConvolutionImpl::kTaps - 1, channels}, like);
  };
  state["q_conv"] = before(options.heads * options.key_width);
  state["k_conv"] = before(options.kv_heads * options.key_width);
  state["v_conv"] = before(options.kv_heads * options.value_width);
  return state;
}

at::Tensor GatedProjections::forward(const at::Tensor& x, const Line& line, LayerState* state) {
  const auto convolved = [&](ShortConvolution& convolution, const at::Tensor& y, const char* cached) {
    if (!convolution) return y;
    return convolution->forward(y, line, state == nullptr ? at::Tensor() : state->at(cached));
  };
  const Heads heads{by_head(convolved(q_conv_, projected(x, q_proj_), "q_conv"), options.heads),
                    by_head(convolved(k_conv_, projected(x, k_proj_), "k_conv"), options.kv_heads),
                    by_head(convolved(v_conv_, projected(x, v_proj_), "v_conv"), options.kv_heads)};
  const at::Tensor o = mixed(heads, x, line, state);
  const auto gate = g_proj_ ? std::optional(by_head(projected(x, g_proj_), options.heads)) : std::nullopt;
  return projected(fused::gated_norm(o, norm_->weight, gate, fused::NormScope::head, options.norm_eps).flatten(2),
                   o_proj_);
}

}  // namespace mhla::nn
