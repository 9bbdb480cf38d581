// Attention and MLP of umT5.
#include "models/umt5/umt5_block.hpp"

#include <cmath>
#include <limits>

namespace mhla::models {
namespace {

constexpr double kFurthest = 128.0;  // tokens; keys beyond share the last bucket

torch::nn::Linear plain_linear(std::int64_t from, std::int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

// As a score, nothing: a mask of minus infinity would make NaN of a text without tokens.
double least_score(at::ScalarType type) {
  switch (type) {
    case at::kHalf:
      return std::numeric_limits<at::Half>::lowest();
    case at::kBFloat16:
      return std::numeric_limits<at::BFloat16>::lowest();
    case at::kDouble:
      return std::numeric_limits<double>::lowest();
    default:
      return std::numeric_limits<float>::lowest();
  }
}

}  // namespace

// In float32 and in this order of operations, as distances 16, 32 and 64 lie on the border of two buckets.
at::Tensor position_buckets(std::int64_t tokens, std::int64_t buckets, at::Device device) {
  const std::int64_t half = buckets / 2, single = half / 2;
  const at::Tensor places = at::arange(tokens, at::TensorOptions(device).dtype(at::kLong));
  const at::Tensor offsets = places.unsqueeze(0) - places.unsqueeze(1);  // [query, key]
  const at::Tensor distances = offsets.abs();
  const at::Tensor steps = at::log(distances.to(at::kFloat) / static_cast<double>(single)) /
                           std::log(kFurthest / static_cast<double>(single));
  const at::Tensor far = (steps * static_cast<double>(half - single)).to(at::kLong).add(single).clamp_max(half - 1);
  return (offsets > 0).to(at::kLong) * half + at::where(distances < single, distances, far);
}

Umt5BlockImpl::Umt5BlockImpl(const Umt5Options& options)
    : heads_(options.heads), norm1_(register_module("norm1", nn::Norm(nn::NormKind::rms, options.width, kUmt5NormEps))),
      norm2_(register_module("norm2", nn::Norm(nn::NormKind::rms, options.width, kUmt5NormEps))),
      q_(plain_linear(options.width, options.attention_width)),
      k_(plain_linear(options.width, options.attention_width)),
      v_(plain_linear(options.width, options.attention_width)),
      o_(plain_linear(options.attention_width, options.width)), gate_(plain_linear(options.width, options.mlp_width)),
      fc1_(plain_linear(options.width, options.mlp_width)), fc2_(plain_linear(options.mlp_width, options.width)),
      positions_(options.buckets, options.heads) {
  const auto attention = register_module("attn", std::make_shared<torch::nn::Module>("attn"));
  attention->register_module("q", q_), attention->register_module("k", k_);
  attention->register_module("v", v_), attention->register_module("o", o_);
  const auto mlp = register_module("ffn", std::make_shared<torch::nn::Module>("ffn"));
  mlp->register_module("gate", torch::nn::Sequential(gate_, torch::nn::GELU()));
  mlp->register_module("fc1", fc1_), mlp->register_module("fc2", fc2_);
  register_module("pos_embedding", std::make_shared<torch::nn::Module>("pos_embedding"))
      ->register_module("embedding", positions_);
}

at::Tensor Umt5BlockImpl::attention(const at::Tensor& x, const at::Tensor& buckets, const at::Tensor& unseen) {
  const auto by_head = [&](torch::nn::Linear& layer) {
    return layer->forward(x).unflatten(-1, {heads_, -1}).transpose(1, 2);
  };
  const at::Tensor q = by_head(q_), k = by_head(k_), v = by_head(v_);
  const at::Tensor bias = positions_->forward(buckets).permute({2, 0, 1}).unsqueeze(0).to(q.scalar_type());
  const at::Tensor scores = bias.masked_fill(unseen, least_score(q.scalar_type()));  // [B, H, T, T]
  const at::Tensor o = at::scaled_dot_product_attention(q, k, v, scores, /*dropout_p=*/0.0, /*is_causal=*/false,
                                                        /*scale=*/1.0);
  return o_->forward(o.transpose(1, 2).flatten(2));
}

at::Tensor Umt5BlockImpl::forward(const at::Tensor& x, const at::Tensor& buckets, const at::Tensor& unseen) {
  const at::Tensor words = x + attention(norm1_->forward(x), buckets, unseen);
  const at::Tensor normed = norm2_->forward(words);
  return words + fc2_->forward(fc1_->forward(normed) * at::gelu(gate_->forward(normed), "tanh"));
}

}  // namespace mhla::models
