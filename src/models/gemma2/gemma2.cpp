// Gemma-2 as a text encoder.
#include "models/gemma2/gemma2.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>

#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {
namespace {

constexpr std::array kSameLayers = {SameLayer{"model.", ""}};

const Gemma2Options& checked(const Gemma2Options& options) {
  constexpr std::int64_t kMost = 1 << 20;
  check_range("vocab_size", options.vocab_size, 1, std::int64_t{1} << 24);
  check_range("hidden_size", options.hidden_size, 1, kMost);
  check_range("intermediate_size", options.intermediate_size, 1, kMost);
  check_range("num_hidden_layers", options.num_hidden_layers, 1, 1024);
  check_range("num_attention_heads", options.num_attention_heads, 1, 4096);
  check_range("num_key_value_heads", options.num_key_value_heads, 1, options.num_attention_heads);
  check_range("head_dim", options.head_dim, 2, 4096);
  check_range("sliding_window", options.sliding_window, 1, std::int64_t{1} << 32);
  if (options.num_attention_heads % options.num_key_value_heads != 0)
    throw Error(fmt::format("num_key_value_heads is {}; it must be a divisor of num_attention_heads, {}",
                            options.num_key_value_heads, options.num_attention_heads));
  if (options.head_dim % 2 != 0) throw Error(fmt::format("head_dim is {}; it must be even", options.head_dim));
  const auto positive = [](const char* name, double value) {
    if (!(value > 0.0) || !std::isfinite(value))
      throw Error(fmt::format("{} is {}; it must be a number above 0", name, value));
  };
  positive("query_pre_attn_scalar", options.query_pre_attn_scalar);
  positive("attn_logit_softcapping", options.attn_logit_softcapping);
  positive("rope_theta", options.rope_theta);
  positive("rms_norm_eps", options.rms_norm_eps);
  return options;
}

// 0 where a query sees a key, minus infinity elsewhere: [B or 1, 1, T, T]. Every token sees itself, so that no row of
// weights is empty.
at::Tensor seen(std::int64_t tokens, std::int64_t window, const at::Tensor& mask, at::Device device) {
  const at::Tensor place = at::arange(tokens, at::TensorOptions(at::kLong).device(device));
  const at::Tensor distance = place.unsqueeze(1) - place;  // of the key behind the query
  at::Tensor visible = distance.ge(0).logical_and(distance.lt(window)).unsqueeze(0);
  if (mask.defined()) visible = visible.logical_and(mask.to(device).ne(0).unsqueeze(1)).logical_or(distance.eq(0));
  return at::zeros(visible.sizes(), at::TensorOptions(at::kFloat).device(device))
      .masked_fill(visible.logical_not(), -std::numeric_limits<float>::infinity())
      .unsqueeze(1);
}

}  // namespace

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, Gemma2Options>
void for_each_option(Options& options, const Visit& visit) {
  visit("vocab_size", options.vocab_size);
  visit("hidden_size", options.hidden_size);
  visit("intermediate_size", options.intermediate_size);
  visit("num_hidden_layers", options.num_hidden_layers);
  visit("num_attention_heads", options.num_attention_heads);
  visit("num_key_value_heads", options.num_key_value_heads);
  visit("head_dim", options.head_dim);
  visit("query_pre_attn_scalar", options.query_pre_attn_scalar);
  visit("sliding_window", options.sliding_window);
  visit("attn_logit_softcapping", options.attn_logit_softcapping);
  visit("rope_theta", options.rope_theta);
  visit("rms_norm_eps", options.rms_norm_eps);
}

void to_json(io::Json& json, const Gemma2Options& options) { write_options(json, options); }

void from_json(const io::Json& json, Gemma2Options& options) {
  read_options(json, options, "Gemma-2", Unknown::ignored);
}

Gemma2::Gemma2(const Gemma2Options& given)
    : options(checked(given)),
      embed_tokens_(register_module("embed_tokens", torch::nn::Embedding(options.vocab_size, options.hidden_size))),
      norm_(register_module("norm", gemma2::Norm(options.hidden_size, options.rms_norm_eps))) {
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>("layers"));
  for (std::int64_t layer = 0; layer < options.num_hidden_layers; ++layer) {
    layers_.push_back(std::make_shared<gemma2::Layer>(options, layer % 2 == 0));
    list->register_module(std::to_string(layer), layers_.back());
  }
}

at::Tensor Gemma2::forward(const at::Tensor& ids, const at::Tensor& mask) {
  if (ids.dim() != 2 || ids.scalar_type() != at::kLong)
    throw Error(fmt::format("ids are {} of shape {}; they must be int64 [batch, tokens]",
                            c10::toString(ids.scalar_type()), c10::str(ids.sizes())));
  if (mask.defined() && mask.sizes() != ids.sizes())
    throw Error(
        fmt::format("mask has shape {}; it must be that of ids, {}", c10::str(mask.sizes()), c10::str(ids.sizes())));
  if (ids.numel() > 0 && (ids.min().item<std::int64_t>() < 0 || ids.max().item<std::int64_t>() >= options.vocab_size))
    throw Error(fmt::format("ids has tokens outside 0 to {}", options.vocab_size - 1));
  const at::Tensor& table = embed_tokens_->weight;
  // The factor is rounded to the type of the states, as in transformers.
  at::Tensor x = embed_tokens_->forward(ids.to(table.device()));
  x = x * at::scalar_tensor(std::sqrt(static_cast<double>(options.hidden_size)), table.options());
  const std::int64_t tokens = ids.size(1);
  const gemma2::Call call{
      .rotary = fused::RotaryTables::line(tokens, options.head_dim, fused::RotaryLayout::half,
                                          at::TensorOptions(at::kFloat).device(table.device()), options.rope_theta),
      .all = seen(tokens, tokens, mask, table.device()),
      .window = seen(tokens, options.sliding_window, mask, table.device())};
  for (const auto& layer : layers_) x = layer->forward(x, call);
  const at::Tensor states = norm_->forward(x);
  return mask.defined() ? states.masked_fill(mask.to(states.device()).eq(0).unsqueeze(2), 0.0) : states;
}

std::span<const SameLayer> Gemma2::weight_names() const { return kSameLayers; }

}  // namespace mhla::models
