// The parts that encoder and decoder of the deep-compression autoencoder are made of, under diffusers' names.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace mhla::models::dcae {

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t side = 3);

// RMSNorm over the channels of an image, with weight and bias.
class ChannelNormImpl : public torch::nn::Module {
 public:
  explicit ChannelNormImpl(std::int64_t channels);
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor weight_, bias_;
};
TORCH_MODULE(ChannelNorm);

// An image to an image of the same size.
class Block : public torch::nn::Module {
 public:
  virtual at::Tensor forward(const at::Tensor& x) = 0;
};

// x + norm(conv2(silu(conv1(x)))).
class ResBlock : public Block {
 public:
  explicit ResBlock(std::int64_t channels);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  torch::nn::Conv2d conv1_, conv2_;
  ChannelNorm norm_;
};

// ReLU linear attention of all positions, on q, k, v and on their convolutions with filters of several sizes.
class MultiscaleAttentionImpl : public torch::nn::Module {
 public:
  MultiscaleAttentionImpl(std::int64_t channels, std::int64_t head_dim, const std::vector<std::int64_t>& sides);
  at::Tensor forward(const at::Tensor& x);

 private:
  struct Scale {
    torch::nn::Conv2d in, out;
  };
  const std::int64_t head_dim_;
  torch::nn::Linear q_, k_, v_, out_;
  std::vector<Scale> scales_;
  ChannelNorm norm_;
};
TORCH_MODULE(MultiscaleAttention);

// x + norm(point(depth(silu(inverted(x))) gated by its second half)).
class GatedConvolutionImpl : public torch::nn::Module {
 public:
  explicit GatedConvolutionImpl(std::int64_t channels);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::Conv2d inverted_, depth_, point_;
  ChannelNorm norm_;
};
TORCH_MODULE(GatedConvolution);

// Attention, then the gated convolution.
class AttentionBlock : public Block {
 public:
  AttentionBlock(std::int64_t channels, std::int64_t head_dim, const std::vector<std::int64_t>& sides);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  MultiscaleAttention attention_;
  GatedConvolution convolution_;
};

// Half the height and width: a convolution of stride 2, or one whose pixels become channels; plus, with a shortcut, the
// pixels as channels, averaged in groups.
class Halving : public Block {
 public:
  Halving(std::int64_t from, std::int64_t to, bool unshuffle, bool shortcut);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  const bool unshuffle_, shortcut_;
  const std::int64_t to_;
  torch::nn::Conv2d conv_;
};

// Twice the height and width: a convolution of the nearest pixels, or one whose channels become pixels; plus, with a
// shortcut, the repeated channels as pixels.
class Doubling : public Block {
 public:
  Doubling(std::int64_t from, std::int64_t to, bool interpolate, bool shortcut);
  at::Tensor forward(const at::Tensor& x) override;

 private:
  const bool interpolate_, shortcut_;
  const std::int64_t to_;
  torch::nn::Conv2d conv_;
};

// Groups of channels averaged to `channels`, and channels repeated to as many.
at::Tensor averaged(const at::Tensor& x, std::int64_t channels);
at::Tensor repeated(const at::Tensor& x, std::int64_t channels);

}  // namespace mhla::models::dcae
