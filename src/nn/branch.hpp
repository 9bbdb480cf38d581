// What a layer adds to the residual stream.
#pragma once

#include <torch/torch.h>

namespace mhla::nn {

// values + bias. On a GPU the bias of the last matrix product is left to the pass that adds the branch.
struct Branch {
  at::Tensor values;
  at::Tensor bias{};  // [C]; undefined: none

  at::Tensor sum() const { return bias.defined() ? values + bias.to(values.scalar_type()) : values; }
};

inline Branch project(torch::nn::Linear& linear, const at::Tensor& x) {
  if (x.is_cuda()) return {at::linear(x, linear->weight), linear->bias};
  return {linear->forward(x)};
}

}  // namespace mhla::nn
