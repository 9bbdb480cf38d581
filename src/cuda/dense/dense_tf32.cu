#include "cuda/dense/kernel.cuh"

template void mhla::cuda::multiply_pairs<mhla::cuda::Tf32Math>(const DenseArgs<float>&, cudaStream_t);
