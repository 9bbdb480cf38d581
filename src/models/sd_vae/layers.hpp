// The parts that encoder and decoder of the image autoencoder are made of, under diffusers' names.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

namespace mhla::models::sd_vae {

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t side = 3);
torch::nn::GroupNorm group_norm(std::int64_t groups, std::int64_t channels);

// x + conv2(silu(norm2(conv1(silu(norm1(x)))))).
class ResnetImpl : public torch::nn::Module {
 public:
  ResnetImpl(std::int64_t from, std::int64_t to, std::int64_t groups);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::GroupNorm norm1_, norm2_;
  torch::nn::Conv2d conv1_, conv2_, shortcut_ = nullptr;
};
TORCH_MODULE(Resnet);

// Softmax attention of one head over all positions.
class SpatialAttentionImpl : public torch::nn::Module {
 public:
  SpatialAttentionImpl(std::int64_t channels, std::int64_t groups);
  at::Tensor forward(const at::Tensor& x);

 private:
  torch::nn::GroupNorm norm_;
  torch::nn::Linear q_, k_, v_, out_;
};
TORCH_MODULE(SpatialAttention);

// Resnet, attention, resnet at the lowest resolution.
class MiddleImpl : public torch::nn::Module {
 public:
  MiddleImpl(std::int64_t channels, std::int64_t groups);
  at::Tensor forward(const at::Tensor& x);

 private:
  Resnet first_, second_;
  SpatialAttention attention_;
};
TORCH_MODULE(Middle);

// Resnets of one resolution, then the way to the next.
class StageImpl : public torch::nn::Module {
 public:
  enum class Then { nothing, halve, twice };  // what happens to height and width

  StageImpl(std::int64_t from, std::int64_t to, std::int64_t resnets, std::int64_t groups, Then then);
  at::Tensor forward(at::Tensor x);

 private:
  const Then then_;
  std::vector<Resnet> resnets_;
  torch::nn::Conv2d resize_ = nullptr;
};
TORCH_MODULE(Stage);

}  // namespace mhla::models::sd_vae
