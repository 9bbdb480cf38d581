// LayerNorm and RMSNorm, with torch's own kernels.
#include "nn/norm.hpp"

namespace mhla::nn {

NormImpl::NormImpl(NormKind kind, std::int64_t dim, double eps) : kind(kind), eps(eps) {
  weight = register_parameter("weight", torch::ones({dim}));
  if (kind == NormKind::layer) bias = register_parameter("bias", torch::zeros({dim}));
}

at::Tensor NormImpl::forward(const at::Tensor& x) {
  if (kind == NormKind::rms) return at::rms_norm(x, weight.sizes(), weight, eps);
  return at::layer_norm(x, weight.sizes(), weight, bias, eps);
}

}  // namespace mhla::nn
