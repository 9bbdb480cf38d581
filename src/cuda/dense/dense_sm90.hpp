// Passes of the dense form over whole heads on the chip: up to 256 tokens in blocks of 16, 64 columns, elements of two
// bytes. False where a call does not suit.
#pragma once

#include "cuda/dense/dense.hpp"

namespace mhla::cuda::hopper {

template <typename E>
bool dense_forward(const DenseForwardArgs<E>& args, cudaStream_t stream);
template <typename E>
bool dense_backward(const DenseBackwardArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
