// One layer of Gemma-2.
#include "models/gemma2/layer.hpp"

#include <cmath>
#include <memory>

#include "models/gemma2/gemma2.hpp"

namespace mhla::models::gemma2 {
namespace {

torch::nn::Linear without_bias(std::int64_t from, std::int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

}  // namespace

at::Tensor NormImpl::forward(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor normed = wide * at::rsqrt(wide.square().mean(-1, /*keepdim=*/true) + eps);
  return (normed * (1.0 + weight.to(at::kFloat))).to(x.scalar_type());
}

AttentionImpl::AttentionImpl(const Gemma2Options& options)
    : heads_(options.num_attention_heads), kv_heads_(options.num_key_value_heads),
      scale_(1.0 / std::sqrt(options.query_pre_attn_scalar)), cap_(options.attn_logit_softcapping),
      q_(register_module("q_proj", without_bias(options.hidden_size, heads_ * options.head_dim))),
      k_(register_module("k_proj", without_bias(options.hidden_size, kv_heads_ * options.head_dim))),
      v_(register_module("v_proj", without_bias(options.hidden_size, kv_heads_ * options.head_dim))),
      o_(register_module("o_proj", without_bias(heads_ * options.head_dim, options.hidden_size))) {}

// [B, T, count D] -> [B, H, T, D]; keys and values are repeated for the heads of their group.
at::Tensor AttentionImpl::heads(const at::Tensor& x, std::int64_t count, const Call* rotate) const {
  at::Tensor by_head = x.unflatten(-1, {count, -1});
  if (rotate != nullptr)
    by_head = std::get<0>(fused::rotary_features(by_head, rotate->rotary, {.feature_map = FeatureMap::identity}));
  return by_head.transpose(1, 2).repeat_interleave(heads_ / count, 1);
}

at::Tensor AttentionImpl::forward(const at::Tensor& x, const Call& call, const at::Tensor& bias) {
  const at::Tensor q = heads(q_->forward(x), heads_, &call), k = heads(k_->forward(x), kv_heads_, &call);
  const at::Tensor v = heads(v_->forward(x), kv_heads_, nullptr);
  const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) * (scale_ / cap_)).tanh() * cap_;
  const at::Tensor weights = at::softmax(scores.to(at::kFloat) + bias, -1).to(v.scalar_type());
  return o_->forward(at::matmul(weights, v).transpose(1, 2).flatten(2));
}

Layer::Layer(const Gemma2Options& options, bool windowed)
    : windowed_(windowed), attention_(options), gate_(without_bias(options.hidden_size, options.intermediate_size)),
      up_(without_bias(options.hidden_size, options.intermediate_size)),
      down_(without_bias(options.intermediate_size, options.hidden_size)),
      before_attention_(options.hidden_size, options.rms_norm_eps),
      after_attention_(options.hidden_size, options.rms_norm_eps),
      before_mlp_(options.hidden_size, options.rms_norm_eps), after_mlp_(options.hidden_size, options.rms_norm_eps) {
  register_module("self_attn", attention_);
  const auto mlp = register_module("mlp", std::make_shared<torch::nn::Module>("mlp"));
  mlp->register_module("gate_proj", gate_);
  mlp->register_module("up_proj", up_);
  mlp->register_module("down_proj", down_);
  register_module("input_layernorm", before_attention_);
  register_module("post_attention_layernorm", after_attention_);
  register_module("pre_feedforward_layernorm", before_mlp_);
  register_module("post_feedforward_layernorm", after_mlp_);
}

at::Tensor Layer::mlp(const at::Tensor& x) {
  return down_->forward(at::gelu(gate_->forward(x), "tanh") * up_->forward(x));
}

at::Tensor Layer::forward(const at::Tensor& x, const Call& call) {
  const at::Tensor attended =
      attention_->forward(before_attention_->forward(x), call, windowed_ ? call.window : call.all);
  const at::Tensor between = x + after_attention_->forward(attended);
  return between + after_mlp_->forward(mlp(before_mlp_->forward(between)));
}

}  // namespace mhla::models::gemma2
