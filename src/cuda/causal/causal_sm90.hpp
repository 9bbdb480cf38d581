// The functions of causal.hpp for elements of two bytes, by bulk copies and warpgroup products.
#pragma once

#include "cuda/causal/causal.hpp"

namespace mhla::cuda::hopper {

template <typename E>
bool suits_causal_heads(const Shape& shape);
template <typename E>
bool causal_heads(const CausalHeadArgs<E>& args, cudaStream_t stream);
template <typename E>
bool causal_gradients(const CausalGradientArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
