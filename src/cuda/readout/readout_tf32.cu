#include "cuda/readout/kernel.cuh"

template void mhla::cuda::read_out<mhla::cuda::Tf32Math>(const ReadoutArgs<float>&, cudaStream_t);
