#include "cuda/readout/kernel.cuh"

template void mhla::cuda::launch_readout<mhla::cuda::HalfMath<__half>, false>(const ReadoutArgs<__half>&, cudaStream_t);
