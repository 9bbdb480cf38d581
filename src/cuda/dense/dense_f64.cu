#include "cuda/dense/kernel.cuh"

template void mhla::cuda::multiply_pairs<mhla::cuda::ExactMath<double>>(const DenseArgs<double>&, cudaStream_t);
