// Activation recomputation: keep a block's input only, and run the block again when its gradient is asked for.
#pragma once

#include <torch/torch.h>

#include <functional>

namespace mhla::nn {

using TokenFunction = std::function<at::Tensor(const at::Tensor&)>;

// block(x), without what it would keep for its backward pass. The block must give the same result when it is run again
// (random numbers are drawn outside and handed in). Gradients of the block's parameters go straight to their .grad().
at::Tensor recompute(const TokenFunction& block, const at::Tensor& x);

}  // namespace mhla::nn
