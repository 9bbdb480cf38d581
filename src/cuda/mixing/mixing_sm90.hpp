// The mixing and its gradient by bulk copies and warpgroup products, for elements of two bytes and up to 256 blocks.
#pragma once

#include "cuda/mixing/mixing.hpp"

namespace mhla::cuda::hopper {

// mix() and mix_adjoint() without masking. Matrices only; z is mixed apart. False where this call needs the portable
// kernel.
template <typename E, bool kAdjoint>
bool mix(const MixingArgs<E>& args, cudaStream_t stream);

std::int64_t mixing_gradient_workspace(const Shape& shape);  // elements

// mixing_gradient() without masking, or without a normaliser. False where this call needs the portable kernel.
template <typename E>
bool mixing_gradient(const MixingGradientArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
