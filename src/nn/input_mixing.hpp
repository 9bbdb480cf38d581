// Mixing that depends on the input: what blocks hold moves the weights of a learned matrix.
#pragma once

#include <torch/torch.h>

#include "mhla/partition.hpp"

namespace mhla::nn {

// Entries of the learned matrix below this count as this: their logarithm is finite, and they can grow again.
inline constexpr double kLeastInputMixing = 1e-5;

// m[i, b] = softmax over b of log matrix[i, b] + tau_h cos(mean of q in block i, mean of k in block b), for every batch
// row and head: [B, H, M, M], in float (double for double). The means of a head are centred: less their mean over the
// blocks. q, k: features [B, N, H, D]; matrix: [M, M]; tau: [H].
at::Tensor input_mixing(const at::Tensor& matrix, const at::Tensor& tau, const at::Tensor& q, const at::Tensor& k,
                        const Partition& partition);

// Means over the tokens of each block of a grid, [B, M, H, D], in float (double for double). x: [B, N, H, D].
at::Tensor block_means(const at::Tensor& x, const Partition& partition);

}  // namespace mhla::nn
