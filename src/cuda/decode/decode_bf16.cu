#include "cuda/decode/kernel.cuh"

namespace mhla::cuda::decode {
MHLA_INSTANTIATE_DECODE(__nv_bfloat16, float)
MHLA_INSTANTIATE_DECODE(__nv_bfloat16, __nv_bfloat16)
}  // namespace mhla::cuda::decode
