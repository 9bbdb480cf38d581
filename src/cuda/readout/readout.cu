// Which kernel makes a readout: the sm_90a ones for elements of two bytes where the call suits them, else the portable
// one.
#include "cuda/readout/readout_sm90.hpp"
#include "cuda/support/math.cuh"

namespace mhla::cuda {

template <typename Math>
void read_out(const ReadoutArgs<typename Math::Element>& args, cudaStream_t stream) {
  if constexpr (sizeof(typename Math::Element) == 2)
    if (args.y ? hopper::read_out_causal(args, stream) : hopper::read_out(args, stream)) return;
  args.y ? launch_readout<Math, true>(args, stream) : launch_readout<Math, false>(args, stream);
}

template <typename Math>
void read_out_keys(const ReadoutArgs<typename Math::Element>& d_k, const ReadoutArgs<typename Math::Element>& d_v,
                   cudaStream_t stream) {
  if constexpr (sizeof(typename Math::Element) == 2)
    if (hopper::read_out_keys(d_k, d_v, stream)) return;
  read_out<Math>(d_v, stream);
  read_out<Math>(d_k, stream);
}

#define MHLA_INSTANTIATE(MATH)                                                            \
  template void read_out<MATH>(const ReadoutArgs<typename MATH::Element>&, cudaStream_t); \
  template void read_out_keys<MATH>(const ReadoutArgs<typename MATH::Element>&,           \
                                    const ReadoutArgs<typename MATH::Element>&, cudaStream_t);
MHLA_INSTANTIATE(HalfMath<__nv_bfloat16>)
MHLA_INSTANTIATE(HalfMath<__half>)
MHLA_INSTANTIATE(Tf32Math)
MHLA_INSTANTIATE(ExactMath<float>)
MHLA_INSTANTIATE(ExactMath<double>)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
