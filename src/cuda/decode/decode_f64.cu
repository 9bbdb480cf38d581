#include "cuda/decode/kernel.cuh"

namespace mhla::cuda::decode {
MHLA_INSTANTIATE_DECODE(double, double)
}  // namespace mhla::cuda::decode
