// What the operator is measured against, in plain torch operations: the composed MHLA formula, linear attention, and
// softmax attention. All take and give token tensors [B, N, H, D].
#pragma once

#include <torch/torch.h>

#include <string>

#include "cli/support/operator_call.hpp"

namespace mhla::cli::bench {

// Order of the tokens a composed call is given. The authors' image models keep tokens in block order between layers;
// their video model keeps raster order and permutes inside each layer.
enum class TokenOrder { block, raster };

// MHLA written with torch operations, differentiable. Equal blocks, no packed sequences; the mixing is [M, M].
torch::Tensor composed_mhla(const Problem& problem, const Tokens& tokens, TokenOrder order);

// O(N) attention without blocks: causal as chunks of `chunk` tokens with running sums, else one summary.
torch::Tensor linear_attention(const Tokens& tokens, Normalizer normalizer, bool causal, std::int64_t chunk);

// Which implementation of scaled_dot_product_attention runs; all but `automatic` throw where theirs cannot.
enum class SoftmaxKernel { automatic, cudnn, flash, efficient };

// torch's scaled_dot_product_attention; where values are wider than keys, their leading part is used.
torch::Tensor softmax_attention(const Tokens& tokens, bool causal, SoftmaxKernel kernel = SoftmaxKernel::automatic);

// [B, N, H, D] tensors in block order, and back.
torch::Tensor to_block_order(const torch::Tensor& x, const Partition& partition);
torch::Tensor from_block_order(const torch::Tensor& x, const Partition& partition);

// The composed formula in double with gradients, one head at a time to bound memory, on the tokens' device; tokens in
// raster order.
Results composed_truth(const Problem& problem, const Tokens& tokens, const torch::Tensor& d_o);

}  // namespace mhla::cli::bench
