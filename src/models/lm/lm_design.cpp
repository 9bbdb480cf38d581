// Sizes by name, checks, and the layers.
#include "models/lm/lm_design.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "mhla/torch.hpp"
#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, LmOptions>
void for_each_option(Options& options, const Visit& visit) {
  visit("model", options.model);
  visit("attention", options.attention);
  visit("vocabulary", options.vocabulary);
  visit("width", options.width);
  visit("depth", options.depth);
  visit("heads", options.heads);
  visit("kv_heads", options.kv_heads);
  visit("mlp_width", options.mlp_width);
  visit("key_ratio", options.key_ratio);
  visit("value_ratio", options.value_ratio);
  visit("feature_map", options.feature_map);
  visit("block_size", options.block_size);
  visit("blocks", options.blocks);
  visit("beyond", options.beyond);
  visit("norm_eps", options.norm_eps);
  visit("rotary_base", options.rotary_base);
  visit("tied", options.tied);
  visit("output_gate", options.output_gate);
  visit("short_convolution", options.short_convolution);
  visit("mixing_init", options.mixing_init);
  visit("mixing_sigma", options.mixing_sigma);
  visit("mixing_frozen", options.mixing_frozen);
  visit("recompute", options.recompute);
}

void to_json(io::Json& json, const LmOptions& options) { write_options(json, options); }
void from_json(const io::Json& json, LmOptions& options) { read_options(json, options, "language model"); }

namespace {

struct LmSize {
  const char* name;
  std::int64_t width, depth, heads, softmax_heads;
};
constexpr std::array kLmSizes = {LmSize{"lm_tiny", 128, 4, 2, 2}, LmSize{"lm_small", 256, 8, 2, 4},
                                 LmSize{"lm_base", 512, 12, 4, 8}, LmSize{"lm_340m", 1024, 24, 4, 16}};

const LmSize& own_lm_size(const std::string& model) {
  const auto* const found = std::ranges::find_if(kLmSizes, [&](const LmSize& size) { return model == size.name; });
  if (found == kLmSizes.end()) throw Error(fmt::format("model \"{}\" is no language model", model));
  return *found;
}

void check_numbers(const LmOptions& options) {
  check_range("vocabulary", options.vocabulary, 1, 1 << 24);
  check_range("width", options.width, 0, 1 << 16);
  check_range("depth", options.depth, 0, 1024);
  check_range("heads", options.heads, 0, 1 << 12);
  check_range("kv_heads", options.kv_heads, 0, 1 << 12);
  check_range("mlp_width", options.mlp_width, 0, 1 << 20);
  check_range("block_size", options.block_size, 1, 1 << 16);
  check_range("blocks", options.blocks, 1, 1 << 14);
  const auto positive = [](const char* name, double value, double most) {
    if (!(value > 0.0 && value <= most))
      throw Error(fmt::format("{} is {}; it must be more than 0 and at most {}", name, value, most));
  };
  positive("key_ratio", options.key_ratio, 64.0);
  positive("value_ratio", options.value_ratio, 64.0);
  positive("norm_eps", options.norm_eps, 1.0);
  positive("rotary_base", options.rotary_base, 1e15);
}

std::int64_t either(std::int64_t option, std::int64_t own) { return option > 0 ? option : own; }

// Two thirds of four times the width, rounded up to a multiple of 256.
std::int64_t usual_mlp_width(std::int64_t width) { return (8 * width / 3 + 255) / 256 * 256; }

}  // namespace

std::vector<std::string> lm_names() {
  std::vector<std::string> names;
  names.reserve(kLmSizes.size());
  for (const LmSize& size : kLmSizes) names.emplace_back(size.name);
  return names;
}

LmDesign::LmDesign(const LmOptions& given) : options(given) {
  check_numbers(options);
  const LmSize& own = own_lm_size(options.model);
  width = either(options.width, own.width);
  depth = either(options.depth, own.depth);
  mlp_width = either(options.mlp_width, usual_mlp_width(width));
  own_heads_ = own.heads;
  own_softmax_heads_ = own.softmax_heads;
  nn::parse_causal_map(options.feature_map);
  parse_beyond_trained(options.beyond);
  parse_mixing_init(options.mixing_init);
  if (options.attention.empty()) throw Error("attention is empty; it must name softmax, linear, gla or mhla");
  for (const std::string& word : names_per_layer(options.attention, depth))
    attention.push_back(nn::parse_causal_kind(word));
  for (const nn::CausalKind kind : attention) heads_of(kind);
}

LmDesign::Heads LmDesign::heads_of(nn::CausalKind kind) const {
  const bool softmax = kind == nn::CausalKind::softmax;
  const std::int64_t heads = either(options.heads, softmax ? own_softmax_heads_ : own_heads_);
  const std::int64_t kv_heads = either(options.kv_heads, heads);
  if (heads % kv_heads != 0)
    throw Error(fmt::format("kv_heads is {}; it must be a divisor of heads, {}", kv_heads, heads));
  const auto width_of = [&](const char* name, double ratio) {
    const double all = static_cast<double>(width) * ratio;
    const auto channels = static_cast<std::int64_t>(std::llround(all));
    if (std::abs(all - static_cast<double>(channels)) > 1e-9 || channels % heads != 0)
      throw Error(fmt::format("{} is {} of width {}, {} channels; they must make {} equal heads", name, ratio, width,
                              all, heads));
    return channels / heads;
  };
  if (softmax && width % heads != 0)
    throw Error(fmt::format("heads is {}; it must be a divisor of width, {}", heads, width));
  const Heads result = softmax ? Heads{heads, kv_heads, width / heads, width / heads}
                               : Heads{heads, kv_heads, width_of("key_ratio", options.key_ratio),
                                       width_of("value_ratio", options.value_ratio)};
  if (kind != nn::CausalKind::gla && result.key_width % 2 != 0)
    throw Error(fmt::format("heads is {}; a head of {} keys has width {}, which must be even to be rotated", heads,
                            nn::name(kind), result.key_width));
  return result;
}

nn::CausalOptions LmDesign::attention_options(std::size_t layer) const {
  nn::CausalOptions result{.kind = attention.at(layer), .dim = width};
  const Heads heads = heads_of(result.kind);
  result.heads = heads.all, result.kv_heads = heads.kv;
  result.key_width = heads.key_width, result.value_width = heads.value_width;
  result.norm_eps = options.norm_eps;
  result.rotary_base = options.rotary_base;
  result.output_gate = options.output_gate;
  result.short_convolution = options.short_convolution;
  result.feature_map = nn::parse_causal_map(options.feature_map);
  result.block_size = options.block_size;
  result.beyond = parse_beyond_trained(options.beyond);
  if (result.kind != nn::CausalKind::mhla) return result;
  result.mixing = mixing_tensor(Partition::line(options.blocks, 1), parse_mixing_init(options.mixing_init),
                                {.sigma = options.mixing_sigma});
  result.mixing_frozen = options.mixing_frozen;
  return result;
}

double LmDesign::least_elements() const {
  const auto channels = static_cast<double>(width);
  const double embeddings = (options.tied ? 1.0 : 2.0) * static_cast<double>(options.vocabulary) * channels;
  double elements = embeddings + 3.0 * static_cast<double>(depth) * channels * static_cast<double>(mlp_width);
  for (const nn::CausalKind kind : attention) {
    const Heads heads = heads_of(kind);
    elements += channels * static_cast<double>((heads.all + heads.kv) * (heads.key_width + heads.value_width));
    if (kind != nn::CausalKind::softmax && options.output_gate)
      elements += channels * static_cast<double>(heads.all * heads.value_width);
    if (kind == nn::CausalKind::mhla) elements += std::pow(static_cast<double>(options.blocks), 2);
  }
  return elements;
}

}  // namespace mhla::models
