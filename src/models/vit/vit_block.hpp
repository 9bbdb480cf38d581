// One block of the vision transformer: x + attn(norm1(x)), then x + mlp(norm2(x)).
#pragma once

#include <torch/torch.h>

#include <memory>

#include "nn/attention.hpp"
#include "nn/mlp.hpp"
#include "nn/norm.hpp"
#include "nn/residual.hpp"

namespace mhla::models {

class VitBlock : public torch::nn::Module {
 public:
  static constexpr std::int64_t kMlpRatio = 4;
  static constexpr double kNormEps = 1e-6;

  VitBlock(std::int64_t dim, nn::NormKind norm, std::shared_ptr<nn::Attention> attention)
      : norm1(register_module("norm1", nn::Norm(norm, dim, kNormEps))), attn(register_module("attn", attention)),
        norm2(register_module("norm2", nn::Norm(norm, dim, kNormEps))),
        mlp(register_module("mlp", nn::Mlp(dim, kMlpRatio * dim))) {}

  // drop: factors of the two branches, [2, B], or undefined.
  void forward(nn::Residual& x, nn::Grid grid, const at::Tensor& drop) {
    const auto factors = [&](std::int64_t branch) { return drop.defined() ? drop[branch] : at::Tensor(); };
    x.add(attn->forward(x.normed(norm1), grid), factors(0));
    x.add(mlp->forward(x.normed(norm2)), factors(1));
  }

  nn::Norm norm1;
  std::shared_ptr<nn::Attention> attn;
  nn::Norm norm2;
  nn::Mlp mlp;
};

}  // namespace mhla::models
