// Whole heads on the chip: a thread block takes one head from its tokens to its result, and the summaries of all its
// blocks stay in shared memory in between. Up to 16 blocks of full 64-token tiles, 64 columns (or two neighbouring
// heads of 32), nothing masked. There is no portable twin: a call that does not suit (another shape, elements of more
// than two bytes, another device) returns false, has done nothing, and needs the kernels of single stages.
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

// Whether calls of this shape run here, provided their rows lie on 16-byte borders.
template <typename E>
bool heads_stay_on_chip(const Shape& shape);

template <typename E>
struct ResidentForwardArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{};
  TokenTensor<E> o{};
  double store_factor = 1;  // of summaries in memory
  bool normalize = false;
};
template <typename E>
bool resident_forward(const ResidentForwardArgs<E>& args, cudaStream_t stream);

template <typename E>
struct ResidentBackwardArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{}, o{}, d_o{};
  TokenTensor<E> d_q{}, d_k{}, d_v{};
  double store_factor = 1;
  bool normalize = false;
  E* scratch = nullptr;             // resident_scratch() elements
  Accumulator<E>* pairs = nullptr;  // [sequences, heads, M, M]: terms of d_mixing; null: not wanted
};
std::int64_t resident_scratch(const Shape& shape);  // elements
template <typename E>
bool resident_backward(const ResidentBackwardArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda
