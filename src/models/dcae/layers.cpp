// The parts of the deep-compression autoencoder.
#include "models/dcae/layers.hpp"

#include <string>

#include "mhla/torch.hpp"

namespace mhla::models::dcae {
namespace {

constexpr double kNormEps = 1e-5, kAttentionEps = 1e-15;
constexpr std::int64_t kExpansion = 4;

torch::nn::Conv2d without_bias(torch::nn::Conv2dOptions options) { return torch::nn::Conv2d(options.bias(false)); }

torch::nn::Linear projection(std::int64_t from, std::int64_t to) {
  return torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false));
}

// A linear layer of the channels of every pixel.
at::Tensor by_pixel(torch::nn::Linear& linear, const at::Tensor& x) {
  return linear->forward(x.movedim(1, -1)).movedim(-1, 1);
}

}  // namespace

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t side) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, side).padding(side / 2));
}

ChannelNormImpl::ChannelNormImpl(std::int64_t channels)
    : weight_(register_parameter("weight", torch::ones(channels))),
      bias_(register_parameter("bias", torch::zeros(channels))) {}

at::Tensor ChannelNormImpl::forward(const at::Tensor& x) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor normed = (wide * at::rsqrt(wide.square().mean(1, /*keepdim=*/true) + kNormEps)).to(x.scalar_type());
  return normed * weight_.view({-1, 1, 1}) + bias_.view({-1, 1, 1});
}

ResBlock::ResBlock(std::int64_t channels)
    : conv1_(register_module("conv1", convolution(channels, channels))),
      conv2_(register_module("conv2", without_bias(torch::nn::Conv2dOptions(channels, channels, 3).padding(1)))),
      norm_(register_module("norm", ChannelNorm(channels))) {}

at::Tensor ResBlock::forward(const at::Tensor& x) {
  return x + norm_->forward(conv2_->forward(at::silu(conv1_->forward(x))));
}

MultiscaleAttentionImpl::MultiscaleAttentionImpl(std::int64_t channels, std::int64_t head_dim,
                                                 const std::vector<std::int64_t>& sides)
    : head_dim_(head_dim), q_(register_module("to_q", projection(channels, channels))),
      k_(register_module("to_k", projection(channels, channels))),
      v_(register_module("to_v", projection(channels, channels))),
      out_(register_module("to_out", projection(channels * (1 + std::ssize(sides)), channels))),
      norm_(register_module("norm_out", ChannelNorm(channels))) {
  const auto list = register_module("to_qkv_multiscale", std::make_shared<torch::nn::Module>("to_qkv_multiscale"));
  const std::int64_t all = 3 * channels, groups = 3 * (channels / head_dim);
  for (const std::int64_t side : sides) {
    const Scale scale{without_bias(torch::nn::Conv2dOptions(all, all, side).padding(side / 2).groups(all)),
                      without_bias(torch::nn::Conv2dOptions(all, all, 1).groups(groups))};
    const auto part =
        list->register_module(std::to_string(scales_.size()), std::make_shared<torch::nn::Module>("scale"));
    part->register_module("proj_in", scale.in);
    part->register_module("proj_out", scale.out);
    scales_.push_back(scale);
  }
}

// A head is any 3 head_dim channels in a row of all q, k, v and their convolutions: its q, its k and its v.
at::Tensor MultiscaleAttentionImpl::forward(const at::Tensor& x) {
  const at::Tensor qkv = at::cat({by_pixel(q_, x), by_pixel(k_, x), by_pixel(v_, x)}, 1);
  std::vector<at::Tensor> all = {qkv};
  for (Scale& scale : scales_) all.push_back(scale.out->forward(scale.in->forward(qkv)));
  const at::Tensor heads = at::cat(all, 1).flatten(2).transpose(1, 2).unflatten(2, {-1, 3 * head_dim_}).contiguous();
  const auto parts = heads.chunk(3, 3);  // [B, N, H, D]
  const at::Tensor o = attention(parts[0], parts[1], parts[2], at::ones({1, 1}, x.options().dtype(at::kFloat)),
                                 {.partition = Partition::line(heads.size(1), heads.size(1)), .eps = kAttentionEps});
  const at::Tensor image = o.flatten(2).transpose(1, 2).unflatten(2, {x.size(2), x.size(3)});
  return x + norm_->forward(by_pixel(out_, image));
}

GatedConvolutionImpl::GatedConvolutionImpl(std::int64_t channels)
    : inverted_(register_module("conv_inverted", convolution(channels, 2 * kExpansion * channels, 1))),
      depth_(register_module("conv_depth", torch::nn::Conv2d(torch::nn::Conv2dOptions(2 * kExpansion * channels,
                                                                                      2 * kExpansion * channels, 3)
                                                                 .padding(1)
                                                                 .groups(2 * kExpansion * channels)))),
      point_(register_module("conv_point", without_bias(torch::nn::Conv2dOptions(kExpansion * channels, channels, 1)))),
      norm_(register_module("norm", ChannelNorm(channels))) {}

at::Tensor GatedConvolutionImpl::forward(const at::Tensor& x) {
  const auto parts = depth_->forward(at::silu(inverted_->forward(x))).chunk(2, 1);
  return x + norm_->forward(point_->forward(parts[0] * at::silu(parts[1])));
}

AttentionBlock::AttentionBlock(std::int64_t channels, std::int64_t head_dim, const std::vector<std::int64_t>& sides)
    : attention_(register_module("attn", MultiscaleAttention(channels, head_dim, sides))),
      convolution_(register_module("conv_out", GatedConvolution(channels))) {}

at::Tensor AttentionBlock::forward(const at::Tensor& x) { return convolution_->forward(attention_->forward(x)); }

Halving::Halving(std::int64_t from, std::int64_t to, bool unshuffle, bool shortcut)
    : unshuffle_(unshuffle), shortcut_(shortcut), to_(to),
      conv_(register_module(
          "conv", unshuffle ? convolution(from, to / 4)
                            : torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, 3).stride(2).padding(1)))) {}

at::Tensor Halving::forward(const at::Tensor& x) {
  const at::Tensor small = unshuffle_ ? at::pixel_unshuffle(conv_->forward(x), 2) : conv_->forward(x);
  return shortcut_ ? small + averaged(at::pixel_unshuffle(x, 2), to_) : small;
}

Doubling::Doubling(std::int64_t from, std::int64_t to, bool interpolate, bool shortcut)
    : interpolate_(interpolate), shortcut_(shortcut), to_(to),
      conv_(register_module("conv", convolution(from, interpolate ? to : 4 * to))) {}

at::Tensor Doubling::forward(const at::Tensor& x) {
  const at::Tensor large = interpolate_
                               ? conv_->forward(at::upsample_nearest2d(x, std::nullopt, at::ArrayRef<double>{2.0, 2.0}))
                               : at::pixel_shuffle(conv_->forward(x), 2);
  return shortcut_ ? large + at::pixel_shuffle(repeated(x, 4 * to_), 2) : large;
}

at::Tensor averaged(const at::Tensor& x, std::int64_t channels) { return x.unflatten(1, {channels, -1}).mean(2); }

at::Tensor repeated(const at::Tensor& x, std::int64_t channels) { return x.repeat_interleave(channels / x.size(1), 1); }

}  // namespace mhla::models::dcae
