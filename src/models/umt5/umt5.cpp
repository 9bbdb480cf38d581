// The umT5 encoder with all its layers, and the names of its weights.
#include "models/umt5/umt5.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {
namespace {

constexpr std::array kTransformersLayers = {
    SameLayer{"encoder.block.", "blocks."},
    SameLayer{"encoder.final_layer_norm.", "norm."},
    SameLayer{"shared.", "token_embedding."},
    SameLayer{"encoder.embed_tokens.", "token_embedding."},
    SameLayer{".layer.0.SelfAttention.relative_attention_bias.", ".pos_embedding.embedding."},
    SameLayer{".layer.0.SelfAttention.", ".attn."},
    SameLayer{".layer.0.layer_norm.", ".norm1."},
    SameLayer{".layer.1.layer_norm.", ".norm2."},
    SameLayer{".layer.1.DenseReluDense.wi_0.", ".ffn.gate.0."},
    SameLayer{".layer.1.DenseReluDense.wi_1.", ".ffn.fc1."},
    SameLayer{".layer.1.DenseReluDense.wo.", ".ffn.fc2."}};

}  // namespace

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, Umt5Options>
void for_each_option(Options& options, const Visit& visit) {
  visit("vocabulary", options.vocabulary);
  visit("width", options.width);
  visit("attention_width", options.attention_width);
  visit("mlp_width", options.mlp_width);
  visit("heads", options.heads);
  visit("depth", options.depth);
  visit("buckets", options.buckets);
}

void to_json(io::Json& json, const Umt5Options& options) { write_options(json, options); }
void from_json(const io::Json& json, Umt5Options& options) { read_options(json, options, "text encoder"); }

void check_umt5_options(const Umt5Options& options) {
  check_range("vocabulary", options.vocabulary, 1, 1 << 24);
  check_range("width", options.width, 1, 1 << 16);
  check_range("attention_width", options.attention_width, 1, 1 << 16);
  check_range("mlp_width", options.mlp_width, 1, 1 << 20);
  check_range("heads", options.heads, 1, 1 << 12);
  check_range("depth", options.depth, 1, 1024);
  check_range("buckets", options.buckets, 4, 1 << 12);
  if (options.attention_width % options.heads != 0)
    throw Error(fmt::format("heads is {}; it must be a divisor of attention_width, {}", options.heads,
                            options.attention_width));
  if (options.buckets % 4 != 0) throw Error(fmt::format("buckets is {}; it must be a multiple of 4", options.buckets));
}

std::int64_t umt5_parameters(const Umt5Options& options) {
  const std::int64_t layer = 4 * options.width * options.attention_width +  // q, k, v, o
                             3 * options.width * options.mlp_width +        // gate, fc1, fc2
                             options.buckets * options.heads + 2 * options.width;
  return options.vocabulary * options.width + options.depth * layer + options.width;
}

std::span<const SameLayer> umt5_weight_names() { return kTransformersLayers; }

void check_umt5_tokens(const at::Tensor& ids, const at::Tensor& mask, const Umt5Options& options) {
  if (ids.dim() != 2 || ids.scalar_type() != at::kLong || ids.numel() == 0)
    throw Error(
        fmt::format("ids have shape {}; they must be int64 [texts, tokens], at least one each", c10::str(ids.sizes())));
  if (mask.sizes() != ids.sizes() || mask.scalar_type() != at::kLong)
    throw Error(fmt::format("mask has shape {}; it must be int64 of the shape of ids, {}", c10::str(mask.sizes()),
                            c10::str(ids.sizes())));
  if (ids.min().item<std::int64_t>() < 0 || ids.max().item<std::int64_t>() >= options.vocabulary)
    throw Error(fmt::format("ids go from {} to {}; the text encoder knows 0 to {}", ids.min().item<std::int64_t>(),
                            ids.max().item<std::int64_t>(), options.vocabulary - 1));
}

at::Tensor through_umt5_layers(at::Tensor x, const at::Tensor& mask, const Umt5Options& options,
                               const Umt5Layer& layer) {
  const at::Tensor buckets = position_buckets(x.size(1), options.buckets, x.device());
  const at::Tensor unseen = (mask == 0).unsqueeze(1).unsqueeze(1);
  for (std::int64_t i = 0; i < options.depth; ++i) x = layer(i, x, buckets, unseen);
  return x;
}

Umt5::Umt5(const Umt5Options& given)
    : options((check_umt5_options(given), given)),
      tokens_(register_module("token_embedding", torch::nn::Embedding(options.vocabulary, options.width))),
      norm_(register_module("norm", nn::Norm(nn::NormKind::rms, options.width, kUmt5NormEps))) {
  const auto list = register_module("blocks", std::make_shared<torch::nn::Module>("blocks"));
  for (std::int64_t i = 0; i < options.depth; ++i) {
    blocks_.emplace_back(options);
    list->register_module(std::to_string(i), blocks_.back());
  }
  initialise();
}

// As T5 starts: matrices so that they keep the size of what they multiply; queries smaller, as scores are not scaled.
void Umt5::initialise() {
  const torch::NoGradGuard no_gradient;
  const std::int64_t head_width = options.attention_width / options.heads;
  for (auto& item : named_parameters()) {
    if (item.value().dim() != 2 || item.key().starts_with("token_embedding.")) continue;
    auto inputs = static_cast<double>(item.value().size(1));
    if (item.key().ends_with(".q.weight")) inputs *= static_cast<double>(head_width);
    if (item.key().ends_with(".embedding.weight")) inputs = static_cast<double>(options.width);
    item.value().normal_(0.0, 1.0 / std::sqrt(inputs));
  }
}

at::Tensor Umt5::encode(const at::Tensor& ids, const at::Tensor& mask) {
  check_umt5_tokens(ids, mask, options);
  const at::Tensor x = through_umt5_layers(
      tokens_->forward(ids), mask, options,
      [&](std::int64_t i, const at::Tensor& words, const at::Tensor& buckets, const at::Tensor& unseen) {
        return blocks_[static_cast<std::size_t>(i)]->forward(words, buckets, unseen);
      });
  return norm_->forward(x) * mask.unsqueeze(2).to(x.scalar_type());
}

}  // namespace mhla::models
