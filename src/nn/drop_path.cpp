// Stochastic depth: all factors of a pass in one draw, one multiply-add per branch.
#include "nn/drop_path.hpp"

#include <vector>

namespace mhla::nn {

at::Tensor drop_path_factors(double rate, std::int64_t blocks, const at::Tensor& tokens, bool training) {
  if (!training || rate <= 0.0) return {};
  const auto options = tokens.options().dtype(at::kFloat);
  const at::Tensor keep = 1.0 - at::linspace(0.0, rate, blocks, options).view({blocks, 1, 1});
  return at::rand({blocks, 2, tokens.size(0)}, options).lt(keep).div(keep).to(tokens.scalar_type());
}

at::Tensor add_branch(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& factors) {
  if (!factors.defined()) return x + branch;
  std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
  shape[0] = -1;
  return at::addcmul(x, branch, factors.view(shape));
}

}  // namespace mhla::nn
