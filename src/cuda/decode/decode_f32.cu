#include "cuda/decode/kernel.cuh"

namespace mhla::cuda::decode {
MHLA_INSTANTIATE_DECODE(float, float)
MHLA_INSTANTIATE_DECODE(float, __nv_bfloat16)
}  // namespace mhla::cuda::decode
