// The functions of resident.hpp for elements of two bytes, by bulk copies and warpgroup products.
#pragma once

#include "cuda/resident/resident.hpp"

namespace mhla::cuda::hopper {

template <typename E>
bool suits_resident_heads(const Shape& shape);
template <typename E>
bool resident_forward(const ResidentForwardArgs<E>& args, cudaStream_t stream);
std::int64_t resident_backward_scratch(const Shape& shape);  // elements
template <typename E>
bool resident_backward(const ResidentBackwardArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda::hopper
