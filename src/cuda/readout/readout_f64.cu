#include "cuda/readout/kernel.cuh"

template void mhla::cuda::launch_readout<mhla::cuda::ExactMath<double>, false>(const ReadoutArgs<double>&,
                                                                               cudaStream_t);
