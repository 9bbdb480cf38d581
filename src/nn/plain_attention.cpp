// Softmax attention as timm has it.
#include <string>

#include "nn/attention.hpp"

namespace mhla::nn {

PlainAttention::PlainAttention(std::int64_t dim, std::int64_t heads)
    : heads(heads), qkv(register_module("qkv", torch::nn::Linear(dim, 3 * dim))),
      proj(register_module("proj", torch::nn::Linear(dim, dim))) {}

Branch PlainAttention::forward(const at::Tensor& x, Grid /*grid*/) {
  const auto parts = qkv->forward(x).unflatten(-1, {3, heads, -1}).unbind(2);
  const at::Tensor o =
      at::scaled_dot_product_attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2));
  return project(proj, o.transpose(1, 2).flatten(2));
}

at::Tensor PlainAttention::weights(const at::Tensor& x, Grid /*grid*/) {
  const auto parts = qkv->forward(x).unflatten(-1, {3, heads, -1}).unbind(2);
  return softmax_weights(parts[0], parts[1]);
}

}  // namespace mhla::nn
