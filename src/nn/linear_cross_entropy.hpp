// The loss of a language model without its logits: the last matrix product and the cross-entropy in pieces.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace mhla::nn {

enum class LossReduction { mean, sum };

struct LinearCrossEntropyOptions {
  std::int64_t ignored = -100;  // the label of tokens that do not count
  LossReduction reduction = LossReduction::mean;
  std::int64_t chunk =
      0;  // tokens whose logits are in memory at once; 0: as many as 2^25 logits are. Changes no result
};

// Of logits = hidden weight^T: over all tokens that count, the mean or the sum of log(sum(exp(logits))) -
// logits[label]; 0 where none counts. hidden: [.., C]; weight: [V, C]; labels: int64 [..]. Sums are in float32, or
// float64 where hidden is. Gradients are made in the forward pass, so that logits are computed once. Differentiable
// once.
at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels,
                                const LinearCrossEntropyOptions& options = {});

}  // namespace mhla::nn
