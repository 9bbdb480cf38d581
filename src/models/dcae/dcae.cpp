// The deep-compression autoencoder.
#include "models/dcae/dcae.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {
namespace {

constexpr const char *kRes = "ResBlock", *kAttention = "EfficientViTBlock";

struct Half {  // the options of encoder or decoder
  std::string name;
  const std::vector<std::string>& types;
  const std::vector<std::int64_t>&channels, &layers;
  const std::vector<std::vector<std::int64_t>>& sides;
};
Half encoder_of(const DcaeOptions& options) {
  return {"encoder", options.encoder_block_types, options.encoder_block_out_channels, options.encoder_layers_per_block,
          options.encoder_qkv_multiscales};
}
Half decoder_of(const DcaeOptions& options) {
  return {"decoder", options.decoder_block_types, options.decoder_block_out_channels, options.decoder_layers_per_block,
          options.decoder_qkv_multiscales};
}

void check_multiple(const std::string& name, std::int64_t value, std::int64_t of) {
  if (value % of != 0) throw Error(fmt::format("{} has {}; it must be a multiple of {}", name, value, of));
}

void check_half(const DcaeOptions& options, const Half& half) {
  constexpr std::int64_t kMostChannels = 1 << 14;
  const std::size_t stages = options.encoder_block_out_channels.size();
  const std::string channels = half.name + "_block_out_channels";
  if (half.types.size() != stages || half.channels.size() != stages || half.layers.size() != stages ||
      half.sides.size() != stages)
    throw Error(fmt::format("the lists of the {} have {}, {}, {} and {} entries; all must have {}", half.name,
                            half.types.size(), half.channels.size(), half.layers.size(), half.sides.size(), stages));
  for (std::size_t i = 0; i < stages; ++i) {
    if (half.types[i] != kRes && half.types[i] != kAttention)
      throw Error(
          fmt::format("{}_block_types has \"{}\"; it may be {} or {}", half.name, half.types[i], kRes, kAttention));
    check_range(channels.c_str(), half.channels[i], 1, kMostChannels);
    check_range((half.name + "_layers_per_block").c_str(), half.layers[i], i == 0 ? 0 : 1, 64);
    if (half.types[i] == kAttention) check_multiple(channels, half.channels[i], options.attention_head_dim);
    for (const std::int64_t side : half.sides[i]) {
      check_range((half.name + "_qkv_multiscales").c_str(), side, 1, 63);
      if (side % 2 == 0) throw Error(fmt::format("{}_qkv_multiscales has {}; filters have odd sides", half.name, side));
    }
  }
  check_multiple(channels, half.channels.back(), options.latent_channels);
}

// Shortcuts average or repeat whole groups of channels.
void check_shortcuts(const Half& half) {
  for (std::size_t i = 0; i + 1 < half.channels.size(); ++i) {
    if (half.layers[i] == 0) continue;
    const std::int64_t large = 4 * half.channels[i], small = half.channels[i + 1];
    if (large % small != 0)
      throw Error(fmt::format("{}_block_out_channels has {} after {}; it must be a divisor of four times that",
                              half.name, small, half.channels[i]));
  }
}

DcaeOptions checked(DcaeOptions options) {
  check_range("in_channels", options.in_channels, 1, 1024);
  check_range("latent_channels", options.latent_channels, 1, 1 << 14);
  check_range("attention_head_dim", options.attention_head_dim, 1, 256);
  check_range("the number of encoder_block_out_channels",
              static_cast<std::int64_t>(options.encoder_block_out_channels.size()), 2, 10);
  for (const Half& half : {encoder_of(options), decoder_of(options)}) {
    check_half(options, half);
    check_shortcuts(half);
  }
  if (options.downsample_block_type == "pixel_unshuffle")
    for (const std::int64_t channels : options.encoder_block_out_channels)
      check_multiple("encoder_block_out_channels", channels, 4);
  const auto one_of = [](const char* name, const std::string& value, std::string_view one, std::string_view other) {
    if (value != one && value != other)
      throw Error(fmt::format("{} is \"{}\"; it may be {} or {}", name, value, one, other));
  };
  one_of("downsample_block_type", options.downsample_block_type, "Conv", "pixel_unshuffle");
  one_of("upsample_block_type", options.upsample_block_type, "interpolate", "pixel_shuffle");
  if (!std::isfinite(options.scaling_factor) || options.scaling_factor <= 0.0)
    throw Error(fmt::format("scaling_factor is {}; it must be a number above 0", options.scaling_factor));
  return options;
}

std::shared_ptr<torch::nn::Module> part(torch::nn::Module& parent, const std::string& name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

std::shared_ptr<dcae::Block> block_of(const DcaeOptions& options, const Half& half, std::size_t stage) {
  if (half.types[stage] == kRes) return std::make_shared<dcae::ResBlock>(half.channels[stage]);
  return std::make_shared<dcae::AttentionBlock>(half.channels[stage], options.attention_head_dim, half.sides[stage]);
}

// The channels of the largest pictures that blocks see.
std::int64_t outer_channels(const Half& half) { return half.layers[0] > 0 ? half.channels[0] : half.channels[1]; }

}  // namespace

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, DcaeOptions>
void for_each_option(Options& options, const Visit& visit) {
  visit("in_channels", options.in_channels);
  visit("latent_channels", options.latent_channels);
  visit("attention_head_dim", options.attention_head_dim);
  visit("encoder_block_types", options.encoder_block_types);
  visit("decoder_block_types", options.decoder_block_types);
  visit("encoder_block_out_channels", options.encoder_block_out_channels);
  visit("decoder_block_out_channels", options.decoder_block_out_channels);
  visit("encoder_layers_per_block", options.encoder_layers_per_block);
  visit("decoder_layers_per_block", options.decoder_layers_per_block);
  visit("encoder_qkv_multiscales", options.encoder_qkv_multiscales);
  visit("decoder_qkv_multiscales", options.decoder_qkv_multiscales);
  visit("downsample_block_type", options.downsample_block_type);
  visit("upsample_block_type", options.upsample_block_type);
  visit("scaling_factor", options.scaling_factor);
}

void to_json(io::Json& json, const DcaeOptions& options) { write_options(json, options); }

void from_json(const io::Json& json, DcaeOptions& options) {
  for (const auto& [name, only] : {std::pair{"decoder_norm_types", "rms_norm"}, std::pair{"decoder_act_fns", "silu"}})
    if (json.is_object() && json.contains(name)) {
      const io::Json& value = json[name];
      const auto other = [&](const io::Json& entry) { return entry != only; };
      if (value.is_array() ? std::ranges::any_of(value, other) : other(value))
        throw Error(fmt::format("autoencoder option \"{}\" is {}; it must be \"{}\"", name, value.dump(), only));
    }
  read_options(json, options, "autoencoder", Unknown::ignored);
}

Dcae::Dcae(DcaeOptions given) : options(checked(std::move(given))) {
  make_encoder();
  make_decoder();
}

void Dcae::make_encoder() {
  const Half half = encoder_of(options);
  const auto encoder = part(*this, "encoder");
  const bool unshuffle = options.downsample_block_type == "pixel_unshuffle";
  if (half.layers[0] > 0)
    encoder_in_ = encoder->register_module("conv_in", dcae::convolution(options.in_channels, half.channels[0]));
  else
    encoder_start_ = encoder->register_module(
        "conv_in",
        std::make_shared<dcae::Halving>(options.in_channels, half.channels[1], unshuffle, /*shortcut=*/false));
  const auto list = part(*encoder, "down_blocks");
  for (std::size_t i = 0; i < half.channels.size(); ++i) {
    Stage& stage = down_.emplace_back();
    for (std::int64_t layer = 0; layer < half.layers[i]; ++layer) stage.push_back(block_of(options, half, i));
    if (i + 1 < half.channels.size() && half.layers[i] > 0)
      stage.push_back(
          std::make_shared<dcae::Halving>(half.channels[i], half.channels[i + 1], unshuffle, /*shortcut=*/true));
    const auto names = part(*list, std::to_string(i));
    for (std::size_t k = 0; k < stage.size(); ++k) names->register_module(std::to_string(k), stage[k]);
  }
  encoder_out_ = encoder->register_module("conv_out", dcae::convolution(half.channels.back(), options.latent_channels));
}

void Dcae::make_decoder() {
  const Half half = decoder_of(options);
  const auto decoder = part(*this, "decoder");
  const bool interpolate = options.upsample_block_type == "interpolate";
  decoder_in_ = decoder->register_module("conv_in", dcae::convolution(options.latent_channels, half.channels.back()));
  const auto list = part(*decoder, "up_blocks");
  for (std::size_t i = 0; i < half.channels.size(); ++i) {
    Stage& stage = up_.emplace_back();
    if (i + 1 < half.channels.size() && half.layers[i] > 0)
      stage.push_back(
          std::make_shared<dcae::Doubling>(half.channels[i + 1], half.channels[i], interpolate, /*shortcut=*/true));
    for (std::int64_t layer = 0; layer < half.layers[i]; ++layer) stage.push_back(block_of(options, half, i));
    const auto names = part(*list, std::to_string(i));
    for (std::size_t k = 0; k < stage.size(); ++k) names->register_module(std::to_string(k), stage[k]);
  }
  const std::int64_t channels = outer_channels(half);
  decoder_norm_ = decoder->register_module("norm_out", dcae::ChannelNorm(channels));
  if (half.layers[0] > 0)
    decoder_out_ = decoder->register_module("conv_out", dcae::convolution(channels, options.in_channels));
  else
    decoder_end_ = decoder->register_module(
        "conv_out", std::make_shared<dcae::Doubling>(channels, options.in_channels, interpolate, /*shortcut=*/false));
}

at::Tensor Dcae::encode(const at::Tensor& pictures) {
  check_images("pictures", pictures, options.in_channels, options.factor());
  at::Tensor x = encoder_start_ ? encoder_start_->forward(pictures) : encoder_in_->forward(pictures);
  for (const Stage& stage : down_)
    for (const auto& block : stage) x = block->forward(x);
  return encoder_out_->forward(x) + dcae::averaged(x, options.latent_channels);
}

at::Tensor Dcae::decode(const at::Tensor& latents) {
  check_images("latents", latents, options.latent_channels, 1);
  at::Tensor x = decoder_in_->forward(latents) + dcae::repeated(latents, options.decoder_block_out_channels.back());
  for (auto stage = up_.rbegin(); stage != up_.rend(); ++stage)
    for (const auto& block : *stage) x = block->forward(x);
  x = at::relu(decoder_norm_->forward(x));
  return decoder_end_ ? decoder_end_->forward(x) : decoder_out_->forward(x);
}

}  // namespace mhla::models
