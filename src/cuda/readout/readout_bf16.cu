#include "cuda/readout/kernel.cuh"

template void mhla::cuda::read_out<mhla::cuda::HalfMath<__nv_bfloat16>>(const ReadoutArgs<__nv_bfloat16>&,
                                                                        cudaStream_t);
