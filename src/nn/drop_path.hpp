// Stochastic depth: in training, a residual branch is left out for some samples and scaled up for the others.
#pragma once

#include <torch/torch.h>

namespace mhla::nn {

// Factors of all branches of a forward pass at once, [blocks, 2, B]: 0 or 1 / (1 - rate). The rate grows linearly from
// 0 at the first block to `rate` at the last. Undefined where nothing is dropped.
at::Tensor drop_path_factors(double rate, std::int64_t blocks, const at::Tensor& tokens, bool training);

// x + branch, each sample's branch times its factor where there are any. x, branch: [B, ...]; factors: [B].
at::Tensor add_branch(const at::Tensor& x, const at::Tensor& branch, const at::Tensor& factors);

}  // namespace mhla::nn
