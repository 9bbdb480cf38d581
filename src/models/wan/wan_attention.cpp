// Wan's attention layers, with softmax, linear attention or MHLA between the tokens.
#include "models/wan/wan_attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mhla/torch.hpp"

namespace mhla::models {
namespace {

constexpr double kNormEps = 1e-6, kFeatureEps = 1e-6, kDenominatorEps = 1e-6;
constexpr std::int64_t kLepeSide = 3;
constexpr std::array<std::string_view, 4> kOutputNorms = {"none", "head", "channels", "projected"};

at::Tensor softmax_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  return at::scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2);
}

fused::RotaryFeaturesOptions normed(const nn::Norm& norm, FeatureMap map, double feature_eps, bool plain) {
  return {.norm = fused::NormScope::channels,
          .weight = norm->weight,
          .norm_eps = kNormEps,
          .feature_map = map,
          .feature_eps = feature_eps,
          .plain = plain};
}

}  // namespace

OutputNorm parse_output_norm(std::string_view text) {
  const auto* const found = std::ranges::find(kOutputNorms, text);
  if (found == kOutputNorms.end())
    throw Error(fmt::format("output_norm is \"{}\"; it may be none, head, channels or projected", text));
  return static_cast<OutputNorm>(found - kOutputNorms.begin());
}

WanProjections::WanProjections(std::int64_t dim, std::int64_t heads)
    : heads(heads), q(register_module("q", torch::nn::Linear(dim, dim))),
      k(register_module("k", torch::nn::Linear(dim, dim))), v(register_module("v", torch::nn::Linear(dim, dim))),
      o(register_module("o", torch::nn::Linear(dim, dim))),
      norm_q(register_module("norm_q", nn::Norm(nn::NormKind::rms, dim, kNormEps))),
      norm_k(register_module("norm_k", nn::Norm(nn::NormKind::rms, dim, kNormEps))) {}

WanSelfAttention::WanSelfAttention(const WanAttentionOptions& options)
    : WanProjections(options.dim, options.heads), options(options) {
  if (options.kind != nn::AttentionKind::mhla) return;
  const std::int64_t dim = options.dim;
  const auto rms = [](std::int64_t width) { return nn::Norm(nn::NormKind::rms, width, kNormEps); };
  mixing_ = register_module("block_attn", VideoMixing(options.partition, options.mixing, options.mixing_frozen));
  if (options.output_norm == OutputNorm::head) g_norm_ = register_module("g_norm", rms(dim / heads));
  if (options.output_norm == OutputNorm::channels) g_norm_ = register_module("g_norm", rms(dim));
  if (options.output_norm == OutputNorm::projected) out_norm_ = register_module("out_rmsnorm", rms(dim));
  if (options.gate) g_ = register_module("g", torch::nn::Linear(dim, dim));
  if (options.lepe)
    lepe_ = register_module(
        "lepe", torch::nn::Conv3d(torch::nn::Conv3dOptions(dim, dim, kLepeSide).groups(dim).padding(kLepeSide / 2)));
}

nn::Branch WanSelfAttention::forward(const at::Tensor& x, VideoGrid grid, const fused::RotaryTables& rotary) {
  if (options.kind == nn::AttentionKind::mhla) return mixed(x, grid, rotary);
  if (options.kind == nn::AttentionKind::linear) return nn::project(o, linear(x, rotary).flatten(2));
  const auto rotated = [&](torch::nn::Linear& layer, const nn::Norm& norm) {
    return std::get<0>(fused::rotary_features(by_head(layer->forward(x)), rotary,
                                              normed(norm, FeatureMap::identity, 0.0, /*plain=*/false)));
  };
  return nn::project(o, softmax_attention(rotated(q, norm_q), rotated(k, norm_k), by_head(v->forward(x))).flatten(2));
}

// The authors' baseline: the mean over tokens in place of the sum, above and below; eps is that of the mean.
at::Tensor WanSelfAttention::linear(const at::Tensor& x, const fused::RotaryTables& rotary) {
  const auto features = [&](torch::nn::Linear& layer, const nn::Norm& norm) {
    return fused::rotary_features(by_head(layer->forward(x)), rotary,
                                  normed(norm, FeatureMap::relu, 0.0, /*plain=*/true));
  };
  const auto [qr, q_plain] = features(q, norm_q);
  const auto [kr, k_plain] = features(k, norm_k);
  const std::int64_t tokens = x.size(1);
  return attention(qr, kr, by_head(v->forward(x)), at::ones({1, 1}, x.options().dtype(at::kFloat)),
                   {.partition = Partition::line(tokens, tokens),
                    .feature_map = FeatureMap::identity,
                    .eps = kDenominatorEps * static_cast<double>(tokens),
                    .q_den = q_plain,
                    .k_den = k_plain});
}

nn::Branch WanSelfAttention::mixed(const at::Tensor& x, VideoGrid grid, const fused::RotaryTables& rotary) {
  const bool normalised = options.normalizer != Normalizer::none;
  const auto features = [&](torch::nn::Linear& layer, const nn::Norm& norm) {
    return fused::rotary_features(by_head(layer->forward(x)), rotary,
                                  normed(norm, FeatureMap::relu, kFeatureEps, normalised));
  };
  const auto [qr, q_plain] = features(q, norm_q);
  const auto [kr, k_plain] = features(k, norm_k);
  const at::Tensor values = v->forward(x);
  const auto [partition, matrix] = mixing_->on(grid);
  AttentionOptions call{.partition = partition,
                        .feature_map = FeatureMap::identity,
                        .normalizer = options.normalizer,
                        .eps = kDenominatorEps};
  if (normalised) call.q_den = q_plain, call.k_den = k_plain;
  at::Tensor out = attention(qr, kr, by_head(values), matrix, call);
  std::optional<at::Tensor> gate;
  if (g_) gate = by_head(g_->forward(x));
  if (g_norm_)
    out = fused::gated_norm(
        out, g_norm_->weight, gate,
        options.output_norm == OutputNorm::head ? fused::NormScope::head : fused::NormScope::channels, kNormEps);
  else if (gate)
    out = out * at::silu(*gate);
  out = out.flatten(2);
  if (lepe_) out = out + video_tokens(lepe_->forward(as_video(values, grid)));
  if (out_norm_) return {out_norm_->forward(o->forward(out))};
  return nn::project(o, out);
}

WanKeysValues WanCrossAttention::keys_values(const at::Tensor& text) {
  return {by_head(norm_k->forward(k->forward(text))), by_head(v->forward(text))};
}

nn::Branch WanCrossAttention::forward(const at::Tensor& x, const WanKeysValues& text) {
  const at::Tensor queries = by_head(norm_q->forward(q->forward(x)));
  return nn::project(o, softmax_attention(queries, text.k, text.v).flatten(2));
}

}  // namespace mhla::models
