#include "cuda/readout/kernel.cuh"

template void mhla::cuda::read_out<mhla::cuda::HalfMath<__half>>(const ReadoutArgs<__half>&, cudaStream_t);
