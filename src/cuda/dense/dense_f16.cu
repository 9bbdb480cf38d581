#include "cuda/dense/kernel.cuh"

template void mhla::cuda::multiply_pairs<mhla::cuda::HalfMath<__half>>(const DenseArgs<__half>&, cudaStream_t);
