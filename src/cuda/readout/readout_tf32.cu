#include "cuda/readout/kernel.cuh"

template void mhla::cuda::launch_readout<mhla::cuda::Tf32Math, false>(const ReadoutArgs<float>&, cudaStream_t);
