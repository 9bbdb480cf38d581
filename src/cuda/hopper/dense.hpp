// The dense form where a whole head fits on the chip: up to 256 tokens in blocks of 16, 64 columns, elements of two
// bytes.
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda::hopper {

template <typename E>
struct DenseForwardArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{};
  TokenTensor<E> o{};
  bool normalize = false;
};
// False where this call needs the portable kernel.
template <typename E>
bool dense_forward(const DenseForwardArgs<E>& args, cudaStream_t stream);

template <typename E>
struct DenseBackwardArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{}, o{}, d_o{};
  TokenTensor<E> d_q{}, d_k{}, d_v{};
  bool normalize = false;
  float* pair_sums = nullptr;  // [sequences, heads, M query blocks, M key blocks]: terms of d_mixing; null: not wanted
};
template <typename E>
bool dense_backward(const DenseBackwardArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
