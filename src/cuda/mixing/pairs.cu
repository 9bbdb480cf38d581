// d m[i, j] from terms that other kernels have summed for each pair of blocks, in a fixed order.
#include <algorithm>

#include "cuda/mixing/mixing.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda {
namespace {

constexpr int kSumThreads = 256;

// Adds what a (sequence, head) has for element (i, j) of its matrix.
template <typename T>
__device__ void add_unit(T& sum, const Shape& shape, const T* pair_sums, int parts, int unit, int i, int j) {
  const SequenceRow s = shape.sequence(unit / shape.heads);
  if (i >= s.blocks || j >= s.blocks || (shape.masking != Masking::none && j > i)) return;
  const std::int64_t first = (static_cast<std::int64_t>(unit) * shape.uniform.blocks + i) * parts;
  for (int part = 0; part < parts; ++part) sum += pair_sums[(first + part) * shape.uniform.blocks + j];
}

// One thread per element, where every (sequence, head) has a matrix of its own.
template <typename T>
__global__ void place_pairs_kernel(const __grid_constant__ Shape shape, const T* pair_sums, int parts, T* d_mixing) {
  const std::int64_t M = shape.mixing_blocks;
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  if (element >= shape.matrices * M * M) return;
  T sum = 0;
  add_unit(sum, shape, pair_sums, parts, static_cast<int>(element / (M * M)), static_cast<int>(element / M % M),
           static_cast<int>(element % M));
  d_mixing[element] = sum;
}

// One thread block per element of d_mixing from number `from` on.
template <typename T>
__global__ void sum_pairs_kernel(const __grid_constant__ Shape shape, const T* pair_sums, int parts, std::int64_t from,
                                 T* d_mixing) {
  const std::int64_t M = shape.mixing_blocks;
  const std::int64_t element = from + blockIdx.x;
  const auto j = static_cast<int>(element % M), i = static_cast<int>(element / M % M);
  const auto matrix = static_cast<int>(element / (M * M));
  T sum = 0;
  for (int n = static_cast<int>(threadIdx.x); n < shape.sequences * shape.heads / shape.matrices; n += kSumThreads)
    add_unit(sum, shape, pair_sums, parts, n * shape.matrices + matrix, i, j);
  __shared__ T sums[kSumThreads];
  sums[threadIdx.x] = sum;
  for (unsigned half = kSumThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
  }
  if (threadIdx.x == 0) d_mixing[element] = sums[0];
}

}  // namespace

template <typename T>
void sum_pairs(const Shape& shape, const T* pair_sums, int parts, T* d_mixing, cudaStream_t stream) {
  constexpr const char* kName = "mixing gradient";
  const std::int64_t M = shape.mixing_blocks, elements = shape.matrices * M * M;
  if (shape.row_matrices > 0) {
    launch(kName, place_pairs_kernel<T>, grid_of(kName, (elements + kSumThreads - 1) / kSumThreads), kSumThreads, 0,
           stream, shape, pair_sums, parts, d_mixing);
    return;
  }
  constexpr std::int64_t kMost = 1 << 30;  // of one launch
  for (std::int64_t from = 0; from < elements; from += kMost)
    launch(kName, sum_pairs_kernel<T>, grid_of(kName, std::min(elements - from, kMost)), kSumThreads, 0, stream, shape,
           pair_sums, parts, from, d_mixing);
}

template void sum_pairs<float>(const Shape&, const float*, int, float*, cudaStream_t);
template void sum_pairs<double>(const Shape&, const double*, int, double*, cudaStream_t);

}  // namespace mhla::cuda
