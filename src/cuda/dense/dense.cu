#include "cuda/dense/dense.hpp"
#include "cuda/readout/readout.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/math.cuh"

namespace mhla::cuda {
namespace {

__global__ void order_kernel(const __grid_constant__ Shape shape, int* order, int capacity) {
  const int row = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= shape.uniform.blocks * capacity) return;
  const BlockTokens tokens(shape, shape.sequence(0), row / capacity);
  const int n = row % capacity;
  order[row] = n < tokens.count() ? static_cast<int>(tokens[n]) : -1;
}

constexpr int kSumThreads = 256;

// One thread block per element of d_mixing.
template <typename T>
__global__ void sum_pairs_kernel(const __grid_constant__ Shape shape, const T* pair_sums, int column_tiles,
                                 T* d_mixing) {
  const std::int64_t M = shape.mixing_blocks;
  const std::int64_t element = blockIdx.x;
  const auto j = static_cast<int>(element % M), i = static_cast<int>(element / M % M);
  const auto head = static_cast<int>(element / (M * M));
  const int heads = shape.mixing_per_head ? 1 : shape.heads;
  const int tiles = (shape.capacity + 15) / 16;  // of a block
  T sum = 0;
  for (int n = static_cast<int>(threadIdx.x); n < shape.sequences * heads; n += kSumThreads) {
    const int unit = shape.mixing_per_head ? n * shape.heads + head : n;
    const SequenceRow s = shape.sequence(unit / shape.heads);
    if (i >= s.blocks || j >= s.blocks || (shape.masking != Masking::none && j > i)) continue;
    const std::int64_t first = (static_cast<std::int64_t>(unit) * shape.uniform.blocks + i) * tiles;
    for (int part = 0; part < tiles * column_tiles; ++part)
      sum += pair_sums[(first * column_tiles + part) * shape.uniform.blocks + j];
  }
  __shared__ T parts[kSumThreads];
  parts[threadIdx.x] = sum;
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
  }
  if (threadIdx.x == 0) d_mixing[element] = parts[0];
}

}  // namespace

void write_order(const Shape& shape, int* order, cudaStream_t stream) {
  launch("order of tokens", order_kernel, dim3(static_cast<unsigned>((dense_rows(shape) + 127) / 128)), 128, 0, stream,
         shape, order, dense_capacity(shape));
}

int dense_column_tiles(DType dtype, int columns, int depth) { return readout_column_tiles(dtype, columns, depth); }

template <typename T>
void sum_pairs(const Shape& shape, const T* pair_sums, int column_tiles, T* d_mixing, cudaStream_t stream) {
  const std::int64_t elements =
      static_cast<std::int64_t>(shape.mixing_per_head ? shape.heads : 1) * shape.mixing_blocks * shape.mixing_blocks;
  launch("mixing gradient", sum_pairs_kernel<T>, dim3(static_cast<unsigned>(elements)), kSumThreads, 0, stream, shape,
         pair_sums, column_tiles, d_mixing);
}

template void sum_pairs<float>(const Shape&, const float*, int, float*, cudaStream_t);
template void sum_pairs<double>(const Shape&, const double*, int, double*, cudaStream_t);

}  // namespace mhla::cuda
