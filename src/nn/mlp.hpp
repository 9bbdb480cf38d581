// The two-layer perceptron of a transformer block.
#pragma once

#include <torch/torch.h>

#include "nn/branch.hpp"

namespace mhla::nn {

// gelu(x + bias), in one pass over memory where there is a kernel for it. x: [.., C]; bias: [C].
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias);

enum class Gelu { exact, tanh };  // tanh: the approximation

class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(std::int64_t dim, std::int64_t hidden, Gelu gelu = Gelu::exact)
      : gelu(gelu), fc1(register_module("fc1", torch::nn::Linear(dim, hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, dim))) {}

  Branch forward(const at::Tensor& x) {
    if (gelu == Gelu::tanh) return project(fc2, at::gelu(fc1->forward(x), "tanh"));
    return project(fc2, x.is_cuda() ? bias_gelu(at::linear(x, fc1->weight), fc1->bias) : at::gelu(fc1->forward(x)));
  }

  const Gelu gelu;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Mlp);

}  // namespace mhla::nn
