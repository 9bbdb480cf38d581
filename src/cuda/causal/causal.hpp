// Token-causal heads in blocks of 64 tokens, several stages in one launch: the identity as phi, no normaliser. There is
// no portable twin: every function returns false where a call needs the kernels of single stages instead (other shapes,
// elements of more than two bytes, another device), and then has done nothing.
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

// Heads whose summaries need not leave the chip: up to 32 blocks, keys of 128 columns.
//
//   out_i = factor (x_i^T T_i + pair_factor m[i, i] sum_{o visible} (x_i . y_o) rest_o)
//   T_i = sum_{e before i} m[i, e] S_e,  S_e = summary_factor sum_{t in e} y_t rest_t^T
//
//   o   x = q  y = k  rest = v   S and T are S and S~
//   dS         y = q  rest = dU  from the last block to the first, nothing read out: S and T are dS~ and dS
template <typename E>
struct CausalHeadArgs {
  Shape shape;
  bool reversed = false;  // the last block comes first, and m is transposed
  TokenTensor<const E> x{}, y{}, rest{};
  TokenTensor<E> out{};  // null, always where reversed: only S and T are wanted
  double summary_factor = 1, factor = 1, pair_factor = 1;
  E* summaries = nullptr;  // S, one row per (sequence, head, block) of the stores; null: neither is wanted
  E* mixtures = nullptr;   // T
};

// Whether causal_heads() takes calls of this shape, provided their rows lie on 16-byte borders and no final state is
// wanted.
template <typename E>
bool causal_heads_stay_on_chip(const Shape& shape);
template <typename E>
bool causal_heads(const CausalHeadArgs<E>& args, cudaStream_t stream);

// dq, dk and dv in one pass over memory; keys of 64 or 128 columns:
//
//   dq = query_factor dO S~^T + dA K     A  = m[b, b] scale tril(Q K^T)
//   dk = V dS^T + dA^T Q                 dA = m[b, b] scale tril(dO V^T)
//   dv = K dS + A^T dO                   d m[b, b] = scale sum tril(Q K^T) tril(dO V^T)
template <typename E>
struct CausalGradientArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{}, d_o{};
  const E* mixed = nullptr;  // S~
  const E* dS = nullptr;
  double query_factor = 1;
  TokenTensor<E> d_q{}, d_k{}, d_v{};
  Accumulator<E>* diagonal = nullptr;  // d m[b, b] of every row of the S~ store, zeros up to the stride; null: unwanted
  int diagonal_stride = 0;
};

template <typename E>
bool causal_gradients(const CausalGradientArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda
