// mix() and mix_adjoint() by bulk copies and warpgroup products, for elements of two bytes, up to 256 blocks and no
// masking.
#pragma once

#include "cuda/mixing/mixing.hpp"

namespace mhla::cuda::hopper {

// False where this call needs the portable kernel. Matrices only; z is mixed apart.
template <typename E, bool kAdjoint>
bool mix(const MixingArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
