// Attention as an N x N matrix A with o = A v and rows that sum to one: what softmax, linear attention and MHLA give a
// query to look at. For looking at, not for speed: everything in double and O(N^2).
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "mhla/partition.hpp"

namespace mhla::analysis {

// q, k: [N, d]. Features are relu(x) + eps.
torch::Tensor softmax_matrix(const torch::Tensor& q, const torch::Tensor& k);
torch::Tensor linear_matrix(const torch::Tensor& q, const torch::Tensor& k);

// Weight of token s for token t: m[blk(t), blk(s)] phi(q_t) . phi(k_s), divided by the row's sum. mixing: [M, M].
torch::Tensor mhla_matrix(const torch::Tensor& q, const torch::Tensor& k, const torch::Tensor& mixing,
                          const Partition& partition);

// Rows and columns of a matrix (or rows of q) in block order, so that blocks are seen as squares.
torch::Tensor block_ordered(const torch::Tensor& matrix, const Partition& partition);

struct MatrixStatistics {
  std::int64_t rank = 0;        // singular values above N * machine epsilon * the largest
  double effective_rank = 0.0;  // exp of the entropy of the singular values, normalised to sum one
  double entropy = 0.0;         // mean over rows of -sum p log p, in nats; log N at most
  double sparsity = 0.0;        // share of weights below a tenth of the uniform weight 1 / N
};
// Weights that are negative or not finite are an Error.
MatrixStatistics statistics(const torch::Tensor& matrix);

// sum_b min(n_b, d): no MHLA matrix has a higher rank.
std::int64_t rank_bound(const Partition& partition, std::int64_t key_dim);

// q, k, v of an image-like input: tokens are a smooth random field over the partition's grid plus noise, projected at
// random. [N, d] each, double; the same for equal seeds.
struct TokenSample {
  torch::Tensor q, k, v;
};
TokenSample sample_tokens(const Partition& partition, std::int64_t dim, std::uint64_t seed);

}  // namespace mhla::analysis
