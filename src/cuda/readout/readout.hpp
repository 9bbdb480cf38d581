// Readout of a matrix per block by the tokens of the block, and the products of token pairs inside causal blocks:
//
//   out_r = factor (x_r^T W_b  +  pair_factor m[b, b] sum_{o visible} (x_r . y_o + g) rest_o)
//
// which is, by the choice of x, W, y and rest, the output and three of the gradients:
//
//   o_t   x = phi(q)  W = S~     y = phi(k)  rest = v
//   dq_t  x = dU      W = S~^T   y = v       rest = phi(k)
//   dv_s  x = phi(k)  W = dS     y = phi(q)  rest = dU
//   dk_s  x = v       W = dS^T   y = dU      rest = phi(q)
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

template <typename E>
struct ReadoutArgs {
  using T = Accumulator<E>;
  Shape shape;
  bool of_queries = true;  // rows are queries (S~ store, `heads` heads), else keys (S store, `kv_heads`)
  TokenTensor<const E> x{};
  Feature x_feature{};
  const E* W = nullptr;
  bool transposed = false;  // read W^T
  double factor = 1;
  TokenTensor<E> out{};

  // Token pairs inside a token-causal block; y null: none.
  TokenTensor<const E> y{}, rest{};
  Feature y_feature{}, rest_feature{};
  double pair_factor = 1;     // not zero where z is given
  TokenScalars<const T> g{};  // by query token; null: zero

  // Denominator q . z~ + eps, computed here from z~ (sums of S~ rows), or given per token.
  const T* z = nullptr;
  TokenScalars<const T> denominator{};

  // out_r += rank_one_factor coefficient_r vector_b, with coefficients of one when there are none.
  const T* vector = nullptr;
  TokenScalars<const T> coefficient{};
  double rank_one_factor = 1;

  // The result is a gradient of phi(raw): chain through phi.
  TokenTensor<const E> raw{};
  Feature raw_feature{};

  // Sums of phi(raw) . (sum over pairs) without m[b, b], one per row and column tile, zeros up to the stride: the terms
  // of d m[b, b]. Null: not wanted.
  T* diagonal = nullptr;
  int diagonal_stride = 0;  // from row to row
};

// The portable kernel. Compiled apart, with and without pairs, for every arithmetic: readout_*.cu and pairs_*.cu.
template <typename Math, bool kPairs>
void launch_readout(const ReadoutArgs<typename Math::Element>& args, cudaStream_t stream);

template <typename Math>
void read_out(const ReadoutArgs<typename Math::Element>& args, cudaStream_t stream);
// dk and dv of the same keys, in one pass where a kernel can.
template <typename Math>
void read_out_keys(const ReadoutArgs<typename Math::Element>& d_k, const ReadoutArgs<typename Math::Element>& d_v,
                   cudaStream_t stream);

}  // namespace mhla::cuda
