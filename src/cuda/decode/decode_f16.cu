#include "cuda/decode/kernel.cuh"

namespace mhla::cuda::decode {
MHLA_INSTANTIATE_DECODE(__half, float)
MHLA_INSTANTIATE_DECODE(__half, __nv_bfloat16)
}  // namespace mhla::cuda::decode
