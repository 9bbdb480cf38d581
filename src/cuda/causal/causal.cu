// Which causal calls run as one launch: those of two-byte elements that suit the sm_90a kernels.
#include "cuda/causal/causal_sm90.hpp"

namespace mhla::cuda {

template <typename E>
bool causal_heads_stay_on_chip(const Shape& shape) {
  if constexpr (sizeof(E) == 2) {
    return hopper::suits_causal_heads<E>(shape);
  } else {
    return false;
  }
}

template <typename E>
bool causal_heads(const CausalHeadArgs<E>& args, cudaStream_t stream) {
  if constexpr (sizeof(E) == 2) {
    return hopper::causal_heads(args, stream);
  } else {
    return false;
  }
}

template <typename E>
bool causal_gradients(const CausalGradientArgs<E>& args, cudaStream_t stream) {
  if constexpr (sizeof(E) == 2) {
    return hopper::causal_gradients(args, stream);
  } else {
    return false;
  }
}

#define MHLA_INSTANTIATE(E)                                              \
  template bool causal_heads_stay_on_chip<E>(const Shape&);              \
  template bool causal_heads<E>(const CausalHeadArgs<E>&, cudaStream_t); \
  template bool causal_gradients<E>(const CausalGradientArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
MHLA_INSTANTIATE(float)
MHLA_INSTANTIATE(double)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
