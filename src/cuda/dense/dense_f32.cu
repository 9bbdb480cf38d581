#include "cuda/dense/kernel.cuh"

template void mhla::cuda::multiply_pairs<mhla::cuda::ExactMath<float>>(const DenseArgs<float>&, cudaStream_t);
