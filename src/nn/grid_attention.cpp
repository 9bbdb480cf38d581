// The authors' attention module, and softmax and linear attention in its place.
#include <string>

#include "mhla/torch.hpp"
#include "nn/attention.hpp"
#include "nn/convolution.hpp"

namespace mhla::nn {
namespace {

constexpr double kInnerNormEps = 1e-5;

}  // namespace

GridAttention::GridAttention(const GridAttentionOptions& options) : options(options) {
  const std::int64_t dim = options.dim;
  if (options.inner_norm) norm_ = register_module("norm", Norm(NormKind::layer, dim, kInnerNormEps));
  to_qkv_ = register_module("to_qkv", torch::nn::Linear(torch::nn::LinearOptions(dim, 3 * dim).bias(options.qkv_bias)));
  if (options.qk_norm) {
    q_norm_ = register_module("q_norm", Norm(NormKind::rms, dim, options.norm_eps));
    k_norm_ = register_module("k_norm", Norm(NormKind::rms, dim, options.norm_eps));
  }
  if (options.lepe_side > 0) lepe_ = register_module("lepe", depthwise(dim, options.lepe_side));
  if (options.kind == AttentionKind::mhla)
    mixing_ = register_module("piece_attn", BlockMixing(options.partition, options.mixing, options.mixing_frozen,
                                                        options.mixing_by_input ? options.heads : 0));
  if (options.kind == AttentionKind::linear) mixing_ = register_module("piece_attn", BlockMixing());
  if (options.gate) gate_ = register_module("to_gate", torch::nn::Linear(dim, dim));
  out_ = torch::nn::Linear(dim, dim);
  register_module("to_out", torch::nn::Sequential(out_));
}

at::Tensor GridAttention::mixing() { return mixing_ ? mixing_->weight : at::Tensor(); }

Qkv GridAttention::projected(const at::Tensor& input) {
  const bool softmax = options.kind == AttentionKind::softmax;
  return qkv_features(to_qkv_->forward(input), q_norm_ ? q_norm_->weight : at::Tensor(),
                      k_norm_ ? k_norm_->weight : at::Tensor(),
                      {.heads = options.heads,
                       .norm_eps = options.norm_eps,
                       .feature_map = softmax ? FeatureMap::identity : FeatureMap::relu,
                       .feature_eps = softmax ? 0.0 : options.feature_eps});
}

Branch GridAttention::forward(const at::Tensor& x, Grid grid) {
  const at::Tensor input = input_of(x);
  const auto [q, k, v, v_again] = projected(input);
  at::Tensor o;
  if (options.kind == AttentionKind::softmax) {
    o = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2);
  } else {
    const auto [partition, mixing] = mixing_->on(grid, q, k);
    const bool linear = options.kind == AttentionKind::linear;
    o = attention(q, k, v, mixing,
                  {.partition = partition,
                   .feature_map = FeatureMap::identity,
                   .normalizer = linear ? Normalizer::paper : options.normalizer});
  }
  o = o.flatten(2);
  if (gate_) o = o * at::silu(gate_->forward(input));
  if (lepe_) o = add_convolved(o, lepe_, v_again.flatten(2), grid);
  if (options.dropout > 0.0 && is_training()) return {at::dropout(out_->forward(o), options.dropout, /*train=*/true)};
  return project(out_, o);
}

at::Tensor GridAttention::weights(const at::Tensor& x, Grid grid) {
  const auto [q, k, v, v_again] = projected(input_of(x));
  if (options.kind == AttentionKind::softmax) return softmax_weights(q, k);
  const auto [partition, mixing] = mixing_->on(grid, q, k);
  return feature_weights(q, k, mixing, partition);
}

}  // namespace mhla::nn
