#include "cuda/readout/kernel.cuh"

template void mhla::cuda::read_out<mhla::cuda::ExactMath<double>>(const ReadoutArgs<double>&, cudaStream_t);
