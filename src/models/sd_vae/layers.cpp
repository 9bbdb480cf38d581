// The parts of the image autoencoder.
#include "models/sd_vae/layers.hpp"

#include <string>

namespace mhla::models::sd_vae {
namespace {

constexpr double kNormEps = 1e-6;

// A list of modules under the names 0, 1, ...
std::shared_ptr<torch::nn::Module> list_of(torch::nn::Module& parent, const char* name) {
  return parent.register_module(name, std::make_shared<torch::nn::Module>(name));
}

}  // namespace

torch::nn::Conv2d convolution(std::int64_t from, std::int64_t to, std::int64_t side) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(from, to, side).padding(side / 2));
}

torch::nn::GroupNorm group_norm(std::int64_t groups, std::int64_t channels) {
  return torch::nn::GroupNorm(torch::nn::GroupNormOptions(groups, channels).eps(kNormEps));
}

ResnetImpl::ResnetImpl(std::int64_t from, std::int64_t to, std::int64_t groups)
    : norm1_(register_module("norm1", group_norm(groups, from))),
      norm2_(register_module("norm2", group_norm(groups, to))), conv1_(register_module("conv1", convolution(from, to))),
      conv2_(register_module("conv2", convolution(to, to))) {
  if (from != to) shortcut_ = register_module("conv_shortcut", convolution(from, to, 1));
}

at::Tensor ResnetImpl::forward(const at::Tensor& x) {
  const at::Tensor inner = conv1_->forward(at::silu(norm1_->forward(x)));
  return (shortcut_ ? shortcut_->forward(x) : x) + conv2_->forward(at::silu(norm2_->forward(inner)));
}

SpatialAttentionImpl::SpatialAttentionImpl(std::int64_t channels, std::int64_t groups)
    : norm_(register_module("group_norm", group_norm(groups, channels))),
      q_(register_module("to_q", torch::nn::Linear(channels, channels))),
      k_(register_module("to_k", torch::nn::Linear(channels, channels))),
      v_(register_module("to_v", torch::nn::Linear(channels, channels))), out_(channels, channels) {
  register_module("to_out", torch::nn::Sequential(out_));
}

at::Tensor SpatialAttentionImpl::forward(const at::Tensor& x) {
  const at::Tensor tokens = norm_->forward(x).flatten(2).transpose(1, 2).unsqueeze(1);  // [B, 1, N, C]
  const at::Tensor o = at::scaled_dot_product_attention(q_->forward(tokens), k_->forward(tokens), v_->forward(tokens));
  return x + out_->forward(o).squeeze(1).transpose(1, 2).reshape_as(x);
}

MiddleImpl::MiddleImpl(std::int64_t channels, std::int64_t groups)
    : first_(channels, channels, groups), second_(channels, channels, groups), attention_(channels, groups) {
  const auto resnets = list_of(*this, "resnets");
  resnets->register_module("0", first_);
  resnets->register_module("1", second_);
  list_of(*this, "attentions")->register_module("0", attention_);
}

at::Tensor MiddleImpl::forward(const at::Tensor& x) {
  return second_->forward(attention_->forward(first_->forward(x)));
}

StageImpl::StageImpl(std::int64_t from, std::int64_t to, std::int64_t resnets, std::int64_t groups, Then then)
    : then_(then) {
  const auto list = list_of(*this, "resnets");
  for (std::int64_t i = 0; i < resnets; ++i) {
    resnets_.emplace_back(i == 0 ? from : to, to, groups);
    list->register_module(std::to_string(i), resnets_.back());
  }
  if (then == Then::nothing) return;
  // The stride of halving comes after a padding below and to the right alone.
  resize_ =
      then == Then::halve ? torch::nn::Conv2d(torch::nn::Conv2dOptions(to, to, 3).stride(2)) : convolution(to, to);
  auto resampler = std::make_shared<torch::nn::Module>("resampler");
  resampler->register_module("conv", resize_);
  list_of(*this, then == Then::halve ? "downsamplers" : "upsamplers")->register_module("0", resampler);
}

at::Tensor StageImpl::forward(at::Tensor x) {
  for (auto& resnet : resnets_) x = resnet->forward(x);
  if (then_ == Then::halve) x = resize_->forward(at::constant_pad_nd(x, {0, 1, 0, 1}));
  if (then_ == Then::twice)
    x = resize_->forward(at::upsample_nearest2d(x, std::nullopt, at::ArrayRef<double>{2.0, 2.0}));
  return x;
}

}  // namespace mhla::models::sd_vae
