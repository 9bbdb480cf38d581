#include "cuda/readout/kernel.cuh"

template void mhla::cuda::read_out<mhla::cuda::ExactMath<float>>(const ReadoutArgs<float>&, cudaStream_t);
