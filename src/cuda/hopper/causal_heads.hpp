// Token-causal heads whose summaries need not leave the chip: up to 32 blocks of 64 tokens, keys of 128 columns, the
// identity as phi, no normaliser, elements of two bytes.
//
//   out_i = factor x_i^T T_i + inner_factor m[i, i] sum_{o visible} (x_i . y_o) rest_o
//   T_i = sum_{e before i} m[i, e] S_e,  S_e = summary_factor sum_{t in e} y_t rest_t^T
//
//   o   x = q  y = k  rest = v   S and T are S and S~
//   dS         y = q  rest = dU  from the last block to the first, nothing read out: S and T are dS~ and dS
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda::hopper {

template <typename E>
struct CausalHeadArgs {
  Shape shape;
  bool reversed = false;  // the last block comes first, and m is transposed
  TokenTensor<const E> x{}, y{}, rest{};
  TokenTensor<E> out{};  // null, always where reversed: only S and T are wanted
  double summary_factor = 1, factor = 1, inner_factor = 1;
  E* summaries = nullptr;  // S, one row per (sequence, head, block) of the stores; null: neither is wanted
  E* mixtures = nullptr;   // T
};

// Whether calls of this shape run here, provided their rows lie on 16-byte borders and no final state is wanted.
template <typename E>
bool causal_heads_stay_on_chip(const Shape& shape);
// False where this call needs the kernels of single stages.
template <typename E>
bool causal_heads(const CausalHeadArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
