// Activation recomputation: keep a block's input only, and run the block again when its gradient is asked for.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace mhla::nn {

// block(x), without what it would keep for its backward pass. The block must give the same result when it is run again
// (random numbers are drawn outside and handed in). Gradients of the block's parameters go straight to their .grad().
// What else depends on parameters must be handed in, as `condition`.
using TokenFunction = std::function<at::Tensor(const at::Tensor& x)>;
at::Tensor recompute(const TokenFunction& block, const at::Tensor& x);
using ConditionedFunction = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& condition)>;
at::Tensor recompute(const ConditionedFunction& block, const at::Tensor& x, const at::Tensor& condition);

}  // namespace mhla::nn
