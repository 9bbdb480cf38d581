// S_b = sum_t phi(k_t) v_t^T over the tokens of every block, and z_b = sum_t phi(k_t).
// The backward pass uses the same product for d S~_i = sum_t phi(q_t) dU_t^T.
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

template <typename E>
struct SummaryArgs {
  using T = Accumulator<E>;
  Shape shape;
  TokenTensor<const E> left{}, right{};  // phi(left)^T right
  Feature feature{};                     // of left
  bool of_queries = false;               // left has `heads` heads and the result goes to S~ rows, else S rows
  double factor = 1;                     // of the result
  E* store = nullptr;
  T* sums = nullptr;                // per row key_pad sums of phi(left), weighted; null: not wanted
  TokenScalars<const T> weights{};  // of the sums; null: ones
  double sums_factor = 1;
  // Summaries of the final state in full precision, initial state included.
  const T* initial_S = nullptr;
  const T* initial_z = nullptr;
  T* final_S = nullptr;
  T* final_z = nullptr;
};

template <typename Math>
void summarize(const SummaryArgs<typename Math::Element>& args, cudaStream_t stream);

}  // namespace mhla::cuda
