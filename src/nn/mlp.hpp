// The two-layer perceptrons of transformer blocks.
#pragma once

#include <torch/torch.h>

#include "nn/branch.hpp"

namespace mhla::nn {

enum class Gelu { exact, tanh };  // tanh: the approximation
inline const char* form_of(Gelu gelu) { return gelu == Gelu::tanh ? "tanh" : "none"; }

// gelu(x + bias), in one pass over memory where there is a kernel for it. x: [.., C]; bias: [C].
at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu gelu = Gelu::exact);

// silu(a) b, likewise. a, b: of the same shape.
at::Tensor silu_product(const at::Tensor& a, const at::Tensor& b);

class MlpImpl : public torch::nn::Module {
 public:
  MlpImpl(std::int64_t dim, std::int64_t hidden, Gelu gelu = Gelu::exact)
      : gelu(gelu), fc1(register_module("fc1", torch::nn::Linear(dim, hidden))),
        fc2(register_module("fc2", torch::nn::Linear(hidden, dim))) {}

  Branch forward(const at::Tensor& x) {
    return project(fc2, x.is_cuda() ? bias_gelu(at::linear(x, fc1->weight), fc1->bias, gelu)
                                    : at::gelu(fc1->forward(x), form_of(gelu)));
  }

  const Gelu gelu;
  torch::nn::Linear fc1, fc2;
};
TORCH_MODULE(Mlp);

// silu(a) b between two linear layers, of which the first makes a and b. Without bias, under the names of fla.
class SwiGluImpl : public torch::nn::Module {
 public:
  SwiGluImpl(std::int64_t dim, std::int64_t hidden)
      : gate_proj(
            register_module("gate_proj", torch::nn::Linear(torch::nn::LinearOptions(dim, 2 * hidden).bias(false)))),
        down_proj(register_module("down_proj", torch::nn::Linear(torch::nn::LinearOptions(hidden, dim).bias(false)))) {}

  at::Tensor forward(const at::Tensor& x) {
    const auto parts = gate_proj->forward(x).chunk(2, -1);
    return down_proj->forward(silu_product(parts[0], parts[1]));
  }

  torch::nn::Linear gate_proj, down_proj;
};
TORCH_MODULE(SwiGlu);

// The same where two layers make a and b, under the names of Llama.
class GatedMlpImpl : public torch::nn::Module {
 public:
  GatedMlpImpl(std::int64_t dim, std::int64_t hidden)
      : gate_proj(register_module("gate_proj", torch::nn::Linear(torch::nn::LinearOptions(dim, hidden).bias(false)))),
        up_proj(register_module("up_proj", torch::nn::Linear(torch::nn::LinearOptions(dim, hidden).bias(false)))),
        down_proj(register_module("down_proj", torch::nn::Linear(torch::nn::LinearOptions(hidden, dim).bias(false)))) {}

  at::Tensor forward(const at::Tensor& x);

  torch::nn::Linear gate_proj, up_proj, down_proj;
};
TORCH_MODULE(GatedMlp);

}  // namespace mhla::nn
