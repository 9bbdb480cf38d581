// The parts of the video autoencoder under Wan's names. Videos are [B, C, T, H, W]; what a layer needs of earlier
// frames is in a FrameCache.
#pragma once

#include <torch/torch.h>

#include "models/wan_vae/frame_cache.hpp"

namespace mhla::models::wan_vae {

// A convolution over frames, rows and columns that sees no later frame. Frames before the first are zero.
class CausalConvolutionImpl : public torch::nn::Module {
 public:
  CausalConvolutionImpl(std::int64_t from, std::int64_t to, std::int64_t frames, std::int64_t side);
  at::Tensor forward(const at::Tensor& x, FrameCache& cache);

 private:
  const std::int64_t before_, side_;  // frames it looks back, and its height and width
  at::Tensor weight_, bias_;
};
TORCH_MODULE(CausalConvolution);

// x / |x| sqrt(C) gamma, with the length over channels.
class ChannelNormImpl : public torch::nn::Module {
 public:
  ChannelNormImpl(std::int64_t channels, std::int64_t axes);  // of positions: 3 for videos, 2 for pictures
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor gamma_;
};
TORCH_MODULE(ChannelNorm);

// shortcut(x) + conv(silu(norm(conv(silu(norm(x)))))).
class ResidualImpl : public torch::nn::Module {
 public:
  ResidualImpl(std::int64_t from, std::int64_t to);
  at::Tensor forward(const at::Tensor& x, FrameCache& cache);

 private:
  ChannelNorm norm_1_, norm_2_;
  CausalConvolution conv_1_, conv_2_, shortcut_ = nullptr;
};
TORCH_MODULE(Residual);

// Softmax attention of one head over the positions of each frame.
class FrameAttentionImpl : public torch::nn::Module {
 public:
  explicit FrameAttentionImpl(std::int64_t channels);
  at::Tensor forward(const at::Tensor& x);

 private:
  ChannelNorm norm_;
  torch::nn::Conv2d to_qkv_, proj_;
};
TORCH_MODULE(FrameAttention);

// Half the height and width and, with `time`, every other frame after the first.
class HalveImpl : public torch::nn::Module {
 public:
  HalveImpl(std::int64_t channels, bool time);
  at::Tensor forward(const at::Tensor& x, FrameCache& cache);

 private:
  torch::nn::Conv2d conv_;
  torch::nn::Conv3d time_conv_ = nullptr;
};
TORCH_MODULE(Halve);

// Twice the height and width at half the channels and, with `time`, two frames for every one after the first.
class TwiceImpl : public torch::nn::Module {
 public:
  TwiceImpl(std::int64_t channels, bool time);
  at::Tensor forward(const at::Tensor& x, FrameCache& cache);

 private:
  torch::nn::Conv2d conv_;
  CausalConvolution time_conv_ = nullptr;
};
TORCH_MODULE(Twice);

}  // namespace mhla::models::wan_vae
