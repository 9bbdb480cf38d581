// Which heads stay on the chip as a whole: those of two-byte elements that suit the sm_90a kernels.
#include "cuda/resident/resident_sm90.hpp"

namespace mhla::cuda {

template <typename E>
bool heads_stay_on_chip(const Shape& shape) {
  if constexpr (sizeof(E) == 2) {
    return hopper::suits_resident_heads<E>(shape);
  } else {
    return false;
  }
}

template <typename E>
bool resident_forward(const ResidentForwardArgs<E>& args, cudaStream_t stream) {
  if constexpr (sizeof(E) == 2) {
    return hopper::resident_forward(args, stream);
  } else {
    return false;
  }
}

std::int64_t resident_scratch(const Shape& shape) { return hopper::resident_backward_scratch(shape); }

template <typename E>
bool resident_backward(const ResidentBackwardArgs<E>& args, cudaStream_t stream) {
  if constexpr (sizeof(E) == 2) {
    return hopper::resident_backward(args, stream);
  } else {
    return false;
  }
}

#define MHLA_INSTANTIATE(E)                                                       \
  template bool heads_stay_on_chip<E>(const Shape&);                              \
  template bool resident_forward<E>(const ResidentForwardArgs<E>&, cudaStream_t); \
  template bool resident_backward<E>(const ResidentBackwardArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
MHLA_INSTANTIATE(float)
MHLA_INSTANTIATE(double)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
