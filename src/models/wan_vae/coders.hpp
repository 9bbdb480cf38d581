// Encoder and decoder of the video autoencoder. Each has a part that works where frames are large, which tiles may
// divide, and a part at the resolution of latents, whose attention sees whole frames.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "models/wan_vae/layers.hpp"
#include "models/wan_vae/wan_vae_options.hpp"

namespace mhla::models::wan_vae {

// Layers one after another under the names 0, 1, ...
class Chain {
 public:
  template <typename Layer>
  void add(torch::nn::Module& list, Layer layer) {
    list.register_module(std::to_string(calls_.size()), layer);
    calls_.emplace_back([layer](const at::Tensor& x, FrameCache& cache) mutable { return layer->forward(x, cache); });
  }
  at::Tensor forward(at::Tensor x, FrameCache& cache) const {
    for (const auto& call : calls_) x = call(x, cache);
    return x;
  }

 private:
  std::vector<std::function<at::Tensor(const at::Tensor&, FrameCache&)>> calls_;
};

// Residual, attention, residual.
class MiddleImpl : public torch::nn::Module {
 public:
  explicit MiddleImpl(std::int64_t channels);
  at::Tensor forward(const at::Tensor& x, FrameCache& cache);

 private:
  Residual first_, second_;
  FrameAttention attention_;
};
TORCH_MODULE(Middle);

// Norm, SiLU, convolution.
class HeadImpl : public torch::nn::Module {
 public:
  HeadImpl(std::int64_t from, std::int64_t to);
  at::Tensor forward(const at::Tensor& x, FrameCache& cache);

 private:
  ChannelNorm norm_;
  CausalConvolution conv_;
};
TORCH_MODULE(Head);

class EncoderImpl : public torch::nn::Module {
 public:
  explicit EncoderImpl(const WanVaeOptions& options);

  at::Tensor large(const at::Tensor& video, FrameCache& cache);  // pixels -> features, one per latent
  at::Tensor small(const at::Tensor& features, FrameCache& cache);

  const std::int64_t reach;  // pixels beyond a tile that its features depend on

 private:
  CausalConvolution conv1_;
  Chain downsamples_;
  Middle middle_ = nullptr;
  Head head_ = nullptr;
};
TORCH_MODULE(Encoder);

class DecoderImpl : public torch::nn::Module {
 public:
  explicit DecoderImpl(const WanVaeOptions& options);

  at::Tensor small(const at::Tensor& latents, FrameCache& cache);  // latents -> features
  at::Tensor large(const at::Tensor& features, FrameCache& cache);

  const std::int64_t reach;  // latents beyond a tile that its pixels depend on

 private:
  CausalConvolution conv1_;
  Middle middle_;
  Chain upsamples_;
  Head head_ = nullptr;
};
TORCH_MODULE(Decoder);

}  // namespace mhla::models::wan_vae
