// mixing_gradient() by bulk copies and warpgroup products, for elements of two bytes and up to 256 blocks; without
// masking, or without a normaliser.
#pragma once

#include "cuda/mixing/mixing.hpp"

namespace mhla::cuda::hopper {

std::int64_t mixing_gradient_workspace(const Shape& shape);  // elements

// False where this call needs the portable kernel.
template <typename E>
bool mixing_gradient(const MixingGradientArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
