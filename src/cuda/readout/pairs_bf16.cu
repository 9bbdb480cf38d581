#include "cuda/readout/kernel.cuh"

template void mhla::cuda::launch_readout<mhla::cuda::HalfMath<__nv_bfloat16>, true>(const ReadoutArgs<__nv_bfloat16>&,
                                                                                    cudaStream_t);
