// read_out() without pairs by bulk copies and warpgroup products, for elements of two bytes and heads of 64 or 128
// columns.
#pragma once

#include "cuda/readout/readout.hpp"

namespace mhla::cuda::hopper {

// False where this call needs the portable kernel.
template <typename E>
bool read_out(const ReadoutArgs<E>& args, cudaStream_t stream);

// dk and dv of the same keys in one pass; the arguments are those of the two calls.
template <typename E>
bool read_out_keys(const ReadoutArgs<E>& d_k, const ReadoutArgs<E>& d_v, cudaStream_t stream);

// o or dv with pairs, in token-causal blocks of 64 tokens; the identity as phi, no normaliser.
template <typename E>
bool read_out_causal(const ReadoutArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
