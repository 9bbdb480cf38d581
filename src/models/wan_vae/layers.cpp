// The parts of the video autoencoder.
#include "models/wan_vae/layers.hpp"

#include <cmath>

namespace mhla::models::wan_vae {
namespace {

constexpr std::int64_t kSide = 3;
constexpr std::int64_t kFrames = 3;  // that a convolution sees: its own and two before
constexpr double kLeastLength = 1e-12;

// A layer of pictures on every frame.
template <typename Layer>
at::Tensor on_frames(const at::Tensor& video, Layer&& layer) {
  const at::Tensor pictures = layer(video.transpose(1, 2).flatten(0, 1));
  return pictures.unflatten(0, {video.size(0), video.size(2)}).transpose(1, 2);
}

at::Tensor frames_from(const at::Tensor& video, std::int64_t first) { return video.slice(2, first); }
at::Tensor last_frames(const at::Tensor& video, std::int64_t count) {
  return video.slice(2, video.size(2) - count).clone();  // a view would keep all the frames
}

}  // namespace

CausalConvolutionImpl::CausalConvolutionImpl(std::int64_t from, std::int64_t to, std::int64_t frames, std::int64_t side)
    : before_(frames - 1), side_(side) {
  const torch::nn::Conv3d like(torch::nn::Conv3dOptions(from, to, {frames, side, side}));
  weight_ = register_parameter("weight", like->weight.detach());
  bias_ = register_parameter("bias", like->bias.detach());
}

at::Tensor CausalConvolutionImpl::forward(const at::Tensor& x, FrameCache& cache) {
  const std::int64_t border = side_ / 2;
  if (before_ == 0) return at::conv3d(x, weight_, bias_, at::IntArrayRef({1, 1, 1}), {0, border, border});
  at::Tensor& seen = cache.next();
  const at::Tensor frames = seen.defined() ? at::cat({seen, x}, 2) : at::constant_pad_nd(x, {0, 0, 0, 0, before_, 0});
  seen = last_frames(frames, before_);
  return at::conv3d(frames, weight_, bias_, at::IntArrayRef({1, 1, 1}), {0, border, border});
}

ChannelNormImpl::ChannelNormImpl(std::int64_t channels, std::int64_t axes) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(axes) + 1, 1);
  shape.front() = channels;
  gamma_ = register_parameter("gamma", torch::ones(shape));
}

at::Tensor ChannelNormImpl::forward(const at::Tensor& x) {
  const at::Tensor length = at::linalg_vector_norm(x, 2, {1}, /*keepdim=*/true).clamp_min(kLeastLength);
  return x / length * std::sqrt(static_cast<double>(x.size(1))) * gamma_;
}

ResidualImpl::ResidualImpl(std::int64_t from, std::int64_t to)
    : norm_1_(from, 3), norm_2_(to, 3), conv_1_(from, to, kFrames, kSide), conv_2_(to, to, kFrames, kSide) {
  const auto list = register_module("residual", std::make_shared<torch::nn::Module>("residual"));
  list->register_module("0", norm_1_), list->register_module("2", conv_1_);
  list->register_module("3", norm_2_), list->register_module("6", conv_2_);
  if (from != to) shortcut_ = register_module("shortcut", CausalConvolution(from, to, 1, 1));
}

at::Tensor ResidualImpl::forward(const at::Tensor& x, FrameCache& cache) {
  const at::Tensor inner = conv_1_->forward(at::silu(norm_1_->forward(x)), cache);
  const at::Tensor branch = conv_2_->forward(at::silu(norm_2_->forward(inner)), cache);
  return (shortcut_ ? shortcut_->forward(x, cache) : x) + branch;
}

FrameAttentionImpl::FrameAttentionImpl(std::int64_t channels)
    : norm_(register_module("norm", ChannelNorm(channels, 2))),
      to_qkv_(register_module("to_qkv", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, 3 * channels, 1)))),
      proj_(register_module("proj", torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, channels, 1)))) {}

at::Tensor FrameAttentionImpl::forward(const at::Tensor& x) {
  return x + on_frames(x, [&](const at::Tensor& pictures) {
           const auto parts = to_qkv_->forward(norm_->forward(pictures))
                                  .flatten(2)
                                  .transpose(1, 2)
                                  .unsqueeze(1)  // [B T, 1, positions, 3 C]
                                  .chunk(3, -1);
           const at::Tensor o = at::scaled_dot_product_attention(parts[0], parts[1], parts[2]);
           return proj_->forward(o.squeeze(1).transpose(1, 2).reshape(pictures.sizes()));
         });
}

HalveImpl::HalveImpl(std::int64_t channels, bool time)
    : conv_(torch::nn::Conv2dOptions(channels, channels, kSide).stride(2)) {
  register_module("resample", std::make_shared<torch::nn::Module>("resample"))->register_module("1", conv_);
  if (time)
    time_conv_ = register_module(
        "time_conv",
        torch::nn::Conv3d(torch::nn::Conv3dOptions(channels, channels, {kFrames, 1, 1}).stride({2, 1, 1})));
}

at::Tensor HalveImpl::forward(const at::Tensor& x, FrameCache& cache) {
  at::Tensor half = on_frames(x, [&](const at::Tensor& pictures) {
    return conv_->forward(at::constant_pad_nd(pictures, {0, 1, 0, 1}));  // below and to the right alone
  });
  if (!time_conv_) return half;
  at::Tensor& seen = cache.next();
  at::Tensor frames = seen.defined() ? at::cat({seen, half}, 2) : half;
  const bool first = !seen.defined();
  seen = last_frames(frames, 1);
  if (!first) return time_conv_->forward(frames);
  if (frames.size(2) == 1) return frames;
  return at::cat({frames.slice(2, 0, 1), time_conv_->forward(frames)}, 2);
}

TwiceImpl::TwiceImpl(std::int64_t channels, bool time)
    : conv_(torch::nn::Conv2dOptions(channels, channels / 2, kSide).padding(kSide / 2)) {
  register_module("resample", std::make_shared<torch::nn::Module>("resample"))->register_module("1", conv_);
  if (time) time_conv_ = register_module("time_conv", CausalConvolution(channels, 2 * channels, kFrames, 1));
}

at::Tensor TwiceImpl::forward(const at::Tensor& x, FrameCache& cache) {
  at::Tensor frames = x;
  if (time_conv_) {
    // The first frame of all stays one, and the convolution does not see it.
    const std::int64_t single = cache.first_piece() ? 1 : 0;
    std::vector<at::Tensor> parts;
    if (single > 0) parts.push_back(x.slice(2, 0, single));
    if (const at::Tensor rest = frames_from(x, single); rest.size(2) > 0)
      parts.push_back(time_conv_
                          ->forward(rest, cache)  // [B, 2 C, T, H, W]: a frame's two, one after the other
                          .unflatten(1, {2, x.size(1)})
                          .permute({0, 2, 3, 1, 4, 5})
                          .flatten(2, 3));
    else
      static_cast<void>(cache.next());
    frames = at::cat(parts, 2);
  }
  return on_frames(frames, [&](const at::Tensor& pictures) {
    return conv_->forward(at::upsample_nearest2d(pictures, std::nullopt, at::ArrayRef<double>{2.0, 2.0}));
  });
}

}  // namespace mhla::models::wan_vae
