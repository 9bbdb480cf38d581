// Rows that a warp holds in registers: K vectors of V elements per lane.
#pragma once

#include "cuda/layers/column_sums.cuh"

namespace mhla::cuda::layers {

using rows::kWarp;
using rows::load;
using rows::load_any;
using rows::store;

constexpr int V = 4, kWarps = 8;

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2) value += __shfl_xor_sync(rows::kAllLanes, value, offset);
  return value;
}

// visit(slot, column) for the vectors of this lane.
template <int K, typename Visit>
__device__ __forceinline__ void for_each_vector(int columns, Visit&& visit) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int column = (k * kWarp + lane) * V;
    if (column < columns) visit(k, column);
  }
}

// Where the warps of a block meet to add up their sums.
template <int K>
using Meeting = float[kWarps][K * kWarp * V];

// Adds up what the warps of a block have summed and writes the block's row of `partial`.
template <int K>
__device__ __forceinline__ void write_partial(int columns, const float (&sums)[K][V], Meeting<K>& meeting,
                                              float* partial) {
  __syncthreads();
  for_each_vector<K>(columns, [&](int k, int column) {
#pragma unroll
    for (int i = 0; i < V; ++i) meeting[threadIdx.x / kWarp][column + i] = sums[k][i];
  });
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < columns; column += kWarps * kWarp) {
    float sum = 0.0F;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) sum += meeting[warp][column];
    partial[column] = sum;
  }
}

// run.operator()<K>() with the vectors per lane that hold a row of up to AddNorm::kMostChannels.
template <typename Run>
void with_width(std::int64_t columns, Run&& run) {
  switch ((columns + V * kWarp - 1) / (V * kWarp)) {
    case 1:
      return run.template operator()<1>();
    case 2:
      return run.template operator()<2>();
    case 3:
      return run.template operator()<3>();
    case 4:
      return run.template operator()<4>();
    case 5:
    case 6:
      return run.template operator()<6>();
    case 7:
    case 8:
      return run.template operator()<8>();
    default:
      return run.template operator()<9>();
  }
}

// run.operator()<Element>().
template <typename Run>
void with_element(DType dtype, const char* what, Run&& run) {
  switch (dtype) {
    case DType::bf16:
      return run.template operator()<__nv_bfloat16>();
    case DType::f16:
      return run.template operator()<__half>();
    case DType::f32:
      return run.template operator()<float>();
    default:
      throw Error(std::string(what) + ": no kernel for float64");
  }
}

}  // namespace mhla::cuda::layers
