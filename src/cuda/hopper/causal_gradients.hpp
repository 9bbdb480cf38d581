// dq, dk and dv of token-causal blocks of 64 tokens in one pass over memory; the identity as phi, no normaliser, keys
// of 64 or 128 columns, elements of two bytes:
//
//   dq = query_factor dO S~^T + dA K     A  = m[b, b] scale tril(Q K^T)
//   dk = V dS^T + dA^T Q                 dA = m[b, b] scale tril(dO V^T)
//   dv = K dS + A^T dO                   d m[b, b] = scale sum tril(Q K^T) tril(dO V^T)
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda::hopper {

template <typename E>
struct CausalGradientArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{}, d_o{};
  const E* mixed = nullptr;  // S~
  const E* dS = nullptr;
  double query_factor = 1;
  TokenTensor<E> d_q{}, d_k{}, d_v{};
  float* diagonal = nullptr;  // d m[b, b] of every row of the S~ store, zeros up to the stride; null: not wanted
  int diagonal_stride = 0;
};

// False where this call needs the kernels of single gradients, which are portable ones for dq and dk.
template <typename E>
bool causal_gradients(const CausalGradientArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
