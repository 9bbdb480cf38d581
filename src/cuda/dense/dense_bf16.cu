#include "cuda/dense/kernel.cuh"

template void mhla::cuda::multiply_pairs<mhla::cuda::HalfMath<__nv_bfloat16>>(const DenseArgs<__nv_bfloat16>&,
                                                                              cudaStream_t);
