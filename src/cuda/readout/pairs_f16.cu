#include "cuda/readout/kernel.cuh"

template void mhla::cuda::launch_readout<mhla::cuda::HalfMath<__half>, true>(const ReadoutArgs<__half>&, cudaStream_t);
