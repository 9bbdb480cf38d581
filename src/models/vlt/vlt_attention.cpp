// RALA, MHLA in its place, and softmax, all with rotary positions and a gate.
#include "models/vlt/vlt_attention.hpp"

#include <cmath>

#include "mhla/torch.hpp"
#include "nn/convolution.hpp"

namespace mhla::models {
namespace {

constexpr std::int64_t kLepeSide = 5;
constexpr double kRotaryBase = 10000.0;
constexpr double kDenominatorEps = 1e-6;

}  // namespace

VltRotaryImpl::VltRotaryImpl(std::int64_t head_width) {
  const at::Tensor exponents = -at::linspace(0.0, 1.0, head_width / 4, at::kDouble);
  angle_ = register_buffer("angle", at::pow(kRotaryBase, exponents).repeat_interleave(2).to(at::kFloat));
}

fused::RotaryTables VltRotaryImpl::tables(nn::Grid grid) {
  const at::Tensor angles = angle_.slice(0, 0, std::nullopt, 2).to(at::kFloat);
  const auto turns = [&](std::int64_t size) { return at::outer(at::arange(size, angles.options()), angles).flatten(); };
  const at::Tensor all = at::cat({turns(grid.height), turns(grid.width)});
  const std::int64_t pairs = angles.size(0);
  return {all.cos(), all.sin(), {grid.height, grid.width}, {pairs, pairs}, fused::RotaryLayout::adjacent};
}

VltAttention::VltAttention(const VltAttentionOptions& options)
    : options(options), qkvo_(register_module("qkvo", nn::pointwise(options.dim, 4 * options.dim))),
      proj_(register_module("proj", nn::pointwise(options.dim, options.dim))) {
  if (options.lepe) lepe_ = register_module("lepe", nn::depthwise(options.dim, kLepeSide));
  if (options.kind == nn::AttentionKind::mhla)
    mixing_ = register_module("piece_attn", nn::BlockMixing(options.partition, options.mixing, options.mixing_frozen));
  if (options.kind == nn::AttentionKind::linear) mixing_ = register_module("piece_attn", nn::BlockMixing());
}

VltAttention::Projected VltAttention::project(const at::Tensor& x, const fused::RotaryTables& rotary) {
  const auto parts = nn::projected(qkvo_, x).unflatten(-1, {4, options.heads, -1}).unbind(2);
  const bool softmax = options.kind == nn::AttentionKind::softmax;
  const fused::RotaryFeaturesOptions features{.feature_map = softmax ? FeatureMap::identity : FeatureMap::elu_plus_one,
                                              .plain = !softmax};
  auto [q, q_plain] = fused::rotary_features(parts[0], rotary, features);
  auto [k, k_plain] = fused::rotary_features(parts[1], rotary, features);
  if (options.kind == nn::AttentionKind::linear) {
    const double scale = 1.0 / std::sqrt(static_cast<double>(q.size(3)));
    const at::Tensor scores = (k_plain * q_plain.mean(1, true)).sum(-1, true) * scale;  // [B, N, H, 1]
    const at::Tensor share = at::softmax(scores, 1) * static_cast<double>(x.size(1));
    k = (k * share).to(q.scalar_type());
    k_plain = (k_plain * share).to(q.scalar_type());
  }
  return {q, k, parts[2], parts[3].flatten(2), q_plain, k_plain};
}

at::Tensor VltAttention::forward(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary) {
  const auto [q, k, v, gate, q_plain, k_plain] = project(x, rotary);
  at::Tensor o;
  if (options.kind == nn::AttentionKind::softmax) {
    o = at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2);
  } else {
    const auto [partition, mixing] = mixing_->on(grid, x.device());
    // RALA's sums are means over the tokens: the same quotient with a larger eps.
    const bool linear = options.kind == nn::AttentionKind::linear;
    o = attention(q, k, v, mixing,
                  {.partition = partition,
                   .feature_map = FeatureMap::identity,
                   .eps = linear ? kDenominatorEps * static_cast<double>(grid.tokens()) : kDenominatorEps,
                   .q_den = q_plain,
                   .k_den = k_plain});
  }
  o = o.flatten(2);
  if (lepe_) o = nn::add_convolved(o, lepe_, v.flatten(2), grid);
  return nn::projected(proj_, o * gate);
}

at::Tensor VltAttention::weights(const at::Tensor& x, nn::Grid grid, const fused::RotaryTables& rotary) {
  const Projected projected = project(x, rotary);
  if (options.kind == nn::AttentionKind::softmax) return nn::softmax_weights(projected.q, projected.k);
  const auto [partition, mixing] = mixing_->on(grid, x.device());
  return nn::feature_weights(projected.q_plain, projected.k_plain, mixing, partition);
}

}  // namespace mhla::models
