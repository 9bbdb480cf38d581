// One layer of Sana.
#include "models/sana/sana_block.hpp"

#include <cmath>

#include "mhla/torch.hpp"
#include "nn/convolution.hpp"
#include "nn/modulated.hpp"

namespace mhla::models::sana {
namespace {

// So small that it matters only where no feature of query and keys meets; half precision cannot hold it, nor need it.
constexpr double kDenominatorEps = 1e-15;
constexpr double kQkNormEps = 1e-5;

at::Tensor heads_first(const at::Tensor& x, std::int64_t heads) {
  return x.unflatten(-1, {heads, -1}).transpose(1, 2);  // [B, H, N, D]
}

}  // namespace

GridAttentionImpl::GridAttentionImpl(const SanaDesign& design, nn::AttentionKind kind)
    : kind_(kind), heads_(design.heads),
      qkv_(register_module("qkv",
                           torch::nn::Linear(torch::nn::LinearOptions(design.width, 3 * design.width).bias(false)))),
      proj_(register_module("proj", torch::nn::Linear(design.width, design.width))) {
  if (design.options.qk_norm) {
    q_norm_ = register_module("q_norm", nn::Norm(nn::NormKind::rms, design.width, kQkNormEps));
    k_norm_ = register_module("k_norm", nn::Norm(nn::NormKind::rms, design.width, kQkNormEps));
  }
  if (kind == nn::AttentionKind::linear) mixing_ = register_module("piece_attn", nn::BlockMixing());
  if (kind == nn::AttentionKind::mhla) {
    const Partition partition = design.partition();
    mixing_ = register_module(
        "piece_attn",
        nn::BlockMixing(partition, mixing_tensor(partition, parse_mixing_init(design.options.mixing_init)),
                        design.options.mixing_frozen));
  }
}

at::Tensor GridAttentionImpl::forward(const at::Tensor& x, nn::Grid grid) {
  const auto parts = qkv_->forward(x).chunk(3, -1);
  const at::Tensor q = q_norm_ ? q_norm_->forward(parts[0]) : parts[0];
  const at::Tensor k = k_norm_ ? k_norm_->forward(parts[1]) : parts[1];
  if (kind_ == nn::AttentionKind::softmax) {
    const at::Tensor o =
        at::scaled_dot_product_attention(heads_first(q, heads_), heads_first(k, heads_), heads_first(parts[2], heads_));
    return proj_->forward(o.transpose(1, 2).flatten(2));
  }
  const auto by_head = [&](const at::Tensor& tokens) { return tokens.unflatten(-1, {heads_, -1}); };
  const auto [partition, mixing] = mixing_->on(grid, x.device());
  const at::Tensor o =
      attention(by_head(q), by_head(k), by_head(parts[2]), mixing, {.partition = partition, .eps = kDenominatorEps});
  return proj_->forward(o.flatten(2));
}

TextAttentionImpl::TextAttentionImpl(const SanaDesign& design)
    : heads_(design.cross_heads), q_(register_module("q_linear", torch::nn::Linear(design.width, design.width))),
      kv_(register_module("kv_linear", torch::nn::Linear(design.width, 2 * design.width))),
      proj_(register_module("proj", torch::nn::Linear(design.width, design.width))) {
  if (!design.options.qk_norm) return;
  q_norm_ = register_module("q_norm", nn::Norm(nn::NormKind::rms, design.width, kQkNormEps));
  k_norm_ = register_module("k_norm", nn::Norm(nn::NormKind::rms, design.width, kQkNormEps));
}

TextKeys TextAttentionImpl::keys(const at::Tensor& text) {
  const auto parts = kv_->forward(text).chunk(2, -1);
  const at::Tensor k = k_norm_ ? k_norm_->forward(parts[0]) : parts[0];
  return {heads_first(k, heads_), heads_first(parts[1], heads_)};
}

at::Tensor TextAttentionImpl::forward(const at::Tensor& x, const TextKeys& text, const at::Tensor& bias) {
  at::Tensor q = q_->forward(x);
  if (q_norm_) q = q_norm_->forward(q);
  const std::optional<at::Tensor> mask = bias.defined() ? std::optional(bias.to(q.scalar_type())) : std::nullopt;
  const at::Tensor o = at::scaled_dot_product_attention(heads_first(q, heads_), text.k, text.v, mask);
  return proj_->forward(o.transpose(1, 2).flatten(2));
}

MixFfnImpl::MixFfnImpl(std::int64_t dim, std::int64_t hidden)
    : inverted_(nn::pointwise(dim, 2 * hidden)), depth_(nn::depthwise(2 * hidden, 3)),
      point_(torch::nn::Conv2dOptions(hidden, dim, 1).bias(false)) {
  for (const auto& [name, convolution] :
       {std::pair{"inverted_conv", inverted_}, std::pair{"depth_conv", depth_}, std::pair{"point_conv", point_}})
    register_module(name, std::make_shared<torch::nn::Module>(name))->register_module("conv", convolution);
}

at::Tensor MixFfnImpl::forward(const at::Tensor& x, nn::Grid grid) {
  const auto parts = nn::convolved(depth_, at::silu(nn::projected(inverted_, x)), grid).chunk(2, -1);
  return nn::projected(point_, parts[0] * at::silu(parts[1]));
}

Block::Block(const SanaDesign& design, nn::AttentionKind kind)
    : attn(register_module("attn", GridAttention(design, kind))),
      cross_attn(register_module("cross_attn", TextAttention(design))),
      mlp(register_module("mlp", MixFfn(design.width, design.mlp_width))),
      scale_shift_table(register_parameter(
          "scale_shift_table", torch::randn({6, design.width}) / std::sqrt(static_cast<double>(design.width)))) {}

at::Tensor Block::forward(at::Tensor x, const at::Tensor& time, const TextKeys& text, const at::Tensor& text_bias,
                          nn::Grid grid) {
  const auto parts = (scale_shift_table + time).unbind(1);  // each [B, C]
  x = nn::add_gated(x, {attn->forward(nn::modulated(x, {.scale = parts[1], .shift = parts[0]}), grid)}, parts[2]);
  x = x + cross_attn->forward(x, text, text_bias);
  return nn::add_gated(x, {mlp->forward(nn::modulated(x, {.scale = parts[4], .shift = parts[3]}), grid)}, parts[5]);
}

}  // namespace mhla::models::sana
