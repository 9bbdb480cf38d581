#include "cuda/readout/kernel.cuh"

template void mhla::cuda::launch_readout<mhla::cuda::ExactMath<float>, true>(const ReadoutArgs<float>&, cudaStream_t);
