// LayerNorm or RMSNorm over the channels of a token.
#pragma once

#include <torch/torch.h>

namespace mhla::nn {

enum class NormKind { layer, rms };

class NormImpl : public torch::nn::Module {
 public:
  NormImpl(NormKind kind, std::int64_t dim, double eps);

  at::Tensor forward(const at::Tensor& x);

  const NormKind kind;
  const double eps;
  at::Tensor weight, bias;  // [C]; RMSNorm has no bias
};
TORCH_MODULE(Norm);

}  // namespace mhla::nn
