// The authors' attention module, and softmax and linear attention in its place.
#include <string>

#include "mhla/torch.hpp"
#include "nn/attention.hpp"
#include "nn/convolution.hpp"

namespace mhla::nn {
namespace {

constexpr std::int64_t kLepeSide = 5;
constexpr double kInnerNormEps = 1e-5;

}  // namespace

GridAttention::GridAttention(const GridAttentionOptions& options) : options(options) {
  const std::int64_t dim = options.dim;
  if (options.inner_norm) norm_ = register_module("norm", Norm(NormKind::layer, dim, kInnerNormEps));
  to_qkv_ = register_module("to_qkv", torch::nn::Linear(torch::nn::LinearOptions(dim, 3 * dim).bias(false)));
  q_norm_ = register_module("q_norm", Norm(NormKind::rms, dim, options.norm_eps));
  k_norm_ = register_module("k_norm", Norm(NormKind::rms, dim, options.norm_eps));
  if (options.lepe)
    lepe_ = register_module(
        "lepe", torch::nn::Conv2d(torch::nn::Conv2dOptions(dim, dim, kLepeSide).groups(dim).padding(kLepeSide / 2)));
  if (options.kind == AttentionKind::mhla)
    mixing_ = register_module("piece_attn", BlockMixing(options.partition, options.mixing, options.mixing_frozen));
  if (options.kind == AttentionKind::linear) mixing_ = register_module("piece_attn", BlockMixing());
  out_ = torch::nn::Linear(dim, dim);
  register_module("to_out", torch::nn::Sequential(out_));
}

at::Tensor GridAttention::mixing() { return mixing_ ? mixing_->weight : at::Tensor(); }

Qkv GridAttention::projected(const at::Tensor& x) {
  const at::Tensor input = norm_ ? norm_->forward(x) : x;
  const bool softmax = options.kind == AttentionKind::softmax;
  return qkv_features(to_qkv_->forward(input), q_norm_->weight, k_norm_->weight,
                      {.heads = options.heads,
                       .norm_eps = options.norm_eps,
                       .feature_map = softmax ? FeatureMap::identity : FeatureMap::relu,
                       .feature_eps = softmax ? 0.0 : options.feature_eps});
}

Branch GridAttention::forward(const at::Tensor& x, Grid grid) {
  const auto [q, k, v, v_again] = projected(x);
  at::Tensor o;
  if (options.kind == AttentionKind::softmax) {
    o = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2);
  } else {
    const auto [partition, mixing] = mixing_->on(grid, x.device());
    const bool linear = options.kind == AttentionKind::linear;
    o = attention(q, k, v, mixing,
                  {.partition = partition,
                   .feature_map = FeatureMap::identity,
                   .normalizer = linear ? Normalizer::paper : options.normalizer});
  }
  o = o.flatten(2);
  if (lepe_) o = add_convolved(o, lepe_, v_again.flatten(2), grid);
  return project(out_, o);
}

at::Tensor GridAttention::weights(const at::Tensor& x, Grid grid) {
  const auto [q, k, v, v_again] = projected(x);
  if (options.kind == AttentionKind::softmax) return softmax_weights(q, k);
  const auto [partition, mixing] = mixing_->on(grid, x.device());
  return feature_weights(q, k, mixing, partition);
}

}  // namespace mhla::nn
