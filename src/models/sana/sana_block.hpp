// One layer of Sana: attention on the grid of latents, attention to the text, and a convolutional MLP.
#pragma once

#include <torch/torch.h>

#include "models/sana/sana_options.hpp"
#include "nn/block_mixing.hpp"
#include "nn/grid.hpp"
#include "nn/norm.hpp"

namespace mhla::models::sana {

// Linear attention or MHLA of ReLU features, or softmax attention: qkv without bias, proj.
class GridAttentionImpl : public torch::nn::Module {
 public:
  GridAttentionImpl(const SanaDesign& design, nn::AttentionKind kind);
  at::Tensor forward(const at::Tensor& x, nn::Grid grid);  // [B, N, C]
  at::Tensor mixing() const { return mixing_ ? mixing_->weight : at::Tensor(); }

 private:
  const nn::AttentionKind kind_;
  const std::int64_t heads_;
  torch::nn::Linear qkv_, proj_;
  nn::Norm q_norm_ = nullptr, k_norm_ = nullptr;
  nn::BlockMixing mixing_ = nullptr;
};
TORCH_MODULE(GridAttention);

// Keys and values of the text in one layer: [B, H, L, D].
struct TextKeys {
  at::Tensor k, v;
};

// Softmax attention to the text.
class TextAttentionImpl : public torch::nn::Module {
 public:
  explicit TextAttentionImpl(const SanaDesign& design);
  TextKeys keys(const at::Tensor& text);  // [B, L, C]
  // bias: added to the scores, [B, 1, 1, L]; undefined: all of the text is seen.
  at::Tensor forward(const at::Tensor& x, const TextKeys& text, const at::Tensor& bias);

 private:
  const std::int64_t heads_;
  torch::nn::Linear q_, kv_, proj_;
  nn::Norm q_norm_ = nullptr, k_norm_ = nullptr;
};
TORCH_MODULE(TextAttention);

// Mix-FFN: a depthwise convolution on the grid between two 1x1 convolutions, half of its channels gating the others.
class MixFfnImpl : public torch::nn::Module {
 public:
  MixFfnImpl(std::int64_t dim, std::int64_t hidden);
  at::Tensor forward(const at::Tensor& x, nn::Grid grid);

 private:
  torch::nn::Conv2d inverted_, depth_, point_;
};
TORCH_MODULE(MixFfn);

class Block : public torch::nn::Module {
 public:
  Block(const SanaDesign& design, nn::AttentionKind kind);

  // time: [B, 6, C], shifts, scales and gates of both branches.
  at::Tensor forward(at::Tensor x, const at::Tensor& time, const TextKeys& text, const at::Tensor& text_bias,
                     nn::Grid grid);

  GridAttention attn;
  TextAttention cross_attn;
  MixFfn mlp;
  at::Tensor scale_shift_table;  // [6, C]
};

}  // namespace mhla::models::sana
