// summarize() by bulk copies and warpgroup products, for elements of two bytes and heads of 64, 128 or 256 columns.
#pragma once

#include "cuda/summary/summary.hpp"

namespace mhla::cuda::hopper {

// False where this call needs the portable kernel.
template <typename E>
bool summarize(const SummaryArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
