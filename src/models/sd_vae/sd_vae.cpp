// The image autoencoder of Stable Diffusion.
#include "models/sd_vae/sd_vae.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "models/base/option_checks.hpp"
#include "models/base/options_json.hpp"

namespace mhla::models {
namespace {

using sd_vae::Stage;
using Then = sd_vae::StageImpl::Then;

constexpr std::array kSameLayers = {SameLayer{".attentions.0.query.", ".attentions.0.to_q."},
                                    SameLayer{".attentions.0.key.", ".attentions.0.to_k."},
                                    SameLayer{".attentions.0.value.", ".attentions.0.to_v."},
                                    SameLayer{".attentions.0.proj_attn.", ".attentions.0.to_out.0."}};

SdVaeOptions checked(SdVaeOptions options) {
  constexpr std::int64_t kMostChannels = 1 << 14, kMostStages = 8;
  check_range("in_channels", options.in_channels, 1, kMostChannels);
  check_range("out_channels", options.out_channels, 1, kMostChannels);
  check_range("latent_channels", options.latent_channels, 1, kMostChannels);
  check_range("layers_per_block", options.layers_per_block, 1, 64);
  check_range("norm_num_groups", options.norm_num_groups, 1, kMostChannels);
  check_range("the number of block_out_channels", static_cast<std::int64_t>(options.block_out_channels.size()), 1,
              kMostStages);
  for (const std::int64_t channels : options.block_out_channels) {
    check_range("block_out_channels", channels, 1, kMostChannels);
    if (channels % options.norm_num_groups != 0)
      throw Error(fmt::format("block_out_channels has {}; it must be a multiple of norm_num_groups, {}", channels,
                              options.norm_num_groups));
  }
  if (!std::isfinite(options.scaling_factor) || options.scaling_factor <= 0.0)
    throw Error(fmt::format("scaling_factor is {}; it must be a number above 0", options.scaling_factor));
  return options;
}

std::shared_ptr<torch::nn::Module> part(torch::nn::Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

}  // namespace

template <typename Options, typename Visit>
  requires std::is_same_v<std::remove_const_t<Options>, SdVaeOptions>
void for_each_option(Options& options, const Visit& visit) {
  visit("in_channels", options.in_channels);
  visit("out_channels", options.out_channels);
  visit("latent_channels", options.latent_channels);
  visit("block_out_channels", options.block_out_channels);
  visit("layers_per_block", options.layers_per_block);
  visit("norm_num_groups", options.norm_num_groups);
  visit("scaling_factor", options.scaling_factor);
}

void to_json(io::Json& json, const SdVaeOptions& options) { write_options(json, options); }

void from_json(const io::Json& json, SdVaeOptions& options) {
  read_options(json, options, "autoencoder", Unknown::ignored);
}

SdVae::SdVae(SdVaeOptions given) : options(checked(std::move(given))) {
  make_encoder();
  make_decoder();
  const std::int64_t moments = 2 * options.latent_channels;
  quant_ = register_module("quant_conv", sd_vae::convolution(moments, moments, 1));
  post_quant_ =
      register_module("post_quant_conv", sd_vae::convolution(options.latent_channels, options.latent_channels, 1));
}

void SdVae::make_encoder() {
  const auto& channels = options.block_out_channels;
  const auto encoder = part(*this, "encoder");
  encoder_in_ = encoder->register_module("conv_in", sd_vae::convolution(options.in_channels, channels.front()));
  const auto list = part(*encoder, "down_blocks");
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const Then then = i + 1 < channels.size() ? Then::halve : Then::nothing;
    down_.emplace_back(channels[i == 0 ? 0 : i - 1], channels[i], options.layers_per_block, options.norm_num_groups,
                       then);
    list->register_module(std::to_string(i), down_.back());
  }
  encoder_middle_ = encoder->register_module("mid_block", sd_vae::Middle(channels.back(), options.norm_num_groups));
  encoder_norm_ =
      encoder->register_module("conv_norm_out", sd_vae::group_norm(options.norm_num_groups, channels.back()));
  encoder_out_ =
      encoder->register_module("conv_out", sd_vae::convolution(channels.back(), 2 * options.latent_channels));
}

void SdVae::make_decoder() {
  const std::vector<std::int64_t> channels(options.block_out_channels.rbegin(), options.block_out_channels.rend());
  const auto decoder = part(*this, "decoder");
  decoder_in_ = decoder->register_module("conv_in", sd_vae::convolution(options.latent_channels, channels.front()));
  decoder_middle_ = decoder->register_module("mid_block", sd_vae::Middle(channels.front(), options.norm_num_groups));
  const auto list = part(*decoder, "up_blocks");
  for (std::size_t i = 0; i < channels.size(); ++i) {
    const Then then = i + 1 < channels.size() ? Then::twice : Then::nothing;
    up_.emplace_back(channels[i == 0 ? 0 : i - 1], channels[i], options.layers_per_block + 1, options.norm_num_groups,
                     then);
    list->register_module(std::to_string(i), up_.back());
  }
  decoder_norm_ =
      decoder->register_module("conv_norm_out", sd_vae::group_norm(options.norm_num_groups, channels.back()));
  decoder_out_ = decoder->register_module("conv_out", sd_vae::convolution(channels.back(), options.out_channels));
}

SdVae::Posterior SdVae::encode(const at::Tensor& pictures) {
  check_images("pictures", pictures, options.in_channels, options.factor());
  at::Tensor x = encoder_in_->forward(pictures);
  for (auto& stage : down_) x = stage->forward(x);
  x = encoder_middle_->forward(x);
  const auto moments = quant_->forward(encoder_out_->forward(at::silu(encoder_norm_->forward(x)))).chunk(2, 1);
  return {moments[0], moments[1].clamp(-30.0, 20.0)};
}

at::Tensor SdVae::decode(const at::Tensor& latents) {
  check_images("latents", latents, options.latent_channels, 1);
  at::Tensor x = decoder_middle_->forward(decoder_in_->forward(post_quant_->forward(latents)));
  for (auto& stage : up_) x = stage->forward(x);
  return decoder_out_->forward(at::silu(decoder_norm_->forward(x)));
}

std::span<const SameLayer> SdVae::weight_names() const { return kSameLayers; }

}  // namespace mhla::models
