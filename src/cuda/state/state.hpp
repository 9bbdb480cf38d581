// Summaries that tokens of this call do not touch: the initial state on its way into the S store, and the blocks of the
// final state that receive no token. Also the table of packed sequences, which travels as kernel arguments so that a
// captured call needs no host memory.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

template <typename E>
struct StateArgs {
  using T = Accumulator<E>;
  Shape shape;
  const T* initial_S = nullptr;
  const T* initial_z = nullptr;
  E* store = nullptr;
  double store_factor = 1;
  T* sums = nullptr;     // null: no z
  T* final_S = nullptr;  // null: not wanted
  T* final_z = nullptr;
};

template <typename E>
void load_initial(const StateArgs<E>& args, cudaStream_t stream);
template <typename E>
void fill_final(const StateArgs<E>& args, cudaStream_t stream);

void upload(const std::vector<SequenceRow>& rows, SequenceRow* to, cudaStream_t stream);

}  // namespace mhla::cuda
