// Encoder and decoder of the video autoencoder.
#include "models/wan_vae/coders.hpp"

namespace mhla::models::wan_vae {
namespace {

constexpr std::int64_t kPixelChannels = 3, kConvolved = 3;  // colours; side of a convolution

std::shared_ptr<torch::nn::Module> list_in(torch::nn::Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

// Every convolution of a residual sees one position further; so does the one that halves or doubles. Counted in pixels.
std::int64_t reach_in_pixels(const WanVaeOptions& options, std::int64_t residuals) {
  std::int64_t reach = 1, side = 1;  // the first or last convolution
  for (std::size_t level = 0; level < options.multipliers.size(); ++level, side *= 2) {
    reach += 2 * residuals * side;
    if (level + 1 < options.multipliers.size()) reach += 2 * side;
  }
  return reach;
}

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

MiddleImpl::MiddleImpl(std::int64_t channels)
    : first_(register_module("0", Residual(channels, channels))),
      second_(register_module("2", Residual(channels, channels))),
      attention_(register_module("1", FrameAttention(channels))) {}

at::Tensor MiddleImpl::forward(const at::Tensor& x, FrameCache& cache) {
  return second_->forward(attention_->forward(first_->forward(x, cache)), cache);
}

HeadImpl::HeadImpl(std::int64_t from, std::int64_t to)
    : norm_(register_module("0", ChannelNorm(from, 3))),
      conv_(register_module("2", CausalConvolution(from, to, kConvolved, kConvolved))) {}

at::Tensor HeadImpl::forward(const at::Tensor& x, FrameCache& cache) {
  return conv_->forward(at::silu(norm_->forward(x)), cache);
}

EncoderImpl::EncoderImpl(const WanVaeOptions& options)
    : reach(rounded_up(reach_in_pixels(options, options.residuals), options.pixels())),
      conv1_(register_module("conv1", CausalConvolution(kPixelChannels, options.width, kConvolved, kConvolved))) {
  const auto list = list_in(*this, "downsamples");
  std::int64_t from = options.width;
  for (std::size_t level = 0; level < options.multipliers.size(); ++level) {
    const std::int64_t to = options.width * options.multipliers[level];
    for (std::int64_t i = 0; i < options.residuals; ++i, from = to) downsamples_.add(*list, Residual(from, to));
    if (level < options.halves_time.size()) downsamples_.add(*list, Halve(to, options.halves_time[level]));
  }
  middle_ = register_module("middle", Middle(from));
  head_ = register_module("head", Head(from, 2 * options.latent_channels));
}

at::Tensor EncoderImpl::large(const at::Tensor& video, FrameCache& cache) {
  return downsamples_.forward(conv1_->forward(video, cache), cache);
}

at::Tensor EncoderImpl::small(const at::Tensor& features, FrameCache& cache) {
  return head_->forward(middle_->forward(features, cache), cache);
}

DecoderImpl::DecoderImpl(const WanVaeOptions& options)
    : reach(rounded_up(reach_in_pixels(options, options.residuals + 1), options.pixels()) / options.pixels()),
      conv1_(register_module(
          "conv1", CausalConvolution(options.latent_channels, options.width * options.multipliers.back(), kConvolved,
                                     kConvolved))),
      middle_(register_module("middle", Middle(options.width * options.multipliers.back()))) {
  const auto list = list_in(*this, "upsamples");
  std::int64_t from = options.width * options.multipliers.back();
  for (std::size_t level = options.multipliers.size(); level-- > 0;) {
    const std::int64_t to = options.width * options.multipliers[level];
    for (std::int64_t i = 0; i <= options.residuals; ++i, from = to) upsamples_.add(*list, Residual(from, to));
    if (level == 0) break;
    upsamples_.add(*list, Twice(to, options.halves_time[level - 1]));
    from = to / 2;
  }
  head_ = register_module("head", Head(from, kPixelChannels));
}

at::Tensor DecoderImpl::small(const at::Tensor& latents, FrameCache& cache) {
  return middle_->forward(conv1_->forward(latents, cache), cache);
}

at::Tensor DecoderImpl::large(const at::Tensor& features, FrameCache& cache) {
  return head_->forward(upsamples_.forward(features, cache), cache);
}

}  // namespace mhla::models::wan_vae
