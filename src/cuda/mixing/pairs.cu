// d m[i, j] from terms that other kernels have summed for each pair of blocks, in a fixed order.
#include <algorithm>

#include "cuda/mixing/mixing.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda {
namespace {

constexpr int kSumThreads = 256;

// One thread block per element of d_mixing from number `from` on.
template <typename T>
__global__ void sum_pairs_kernel(const __grid_constant__ Shape shape, const T* pair_sums, int parts, std::int64_t from,
                                 T* d_mixing) {
  const std::int64_t M = shape.mixing_blocks;
  const std::int64_t element = from + blockIdx.x;
  const auto j = static_cast<int>(element % M), i = static_cast<int>(element / M % M);
  const auto head = static_cast<int>(element / (M * M));
  const int heads = shape.mixing_per_head ? 1 : shape.heads;
  T sum = 0;
  for (int n = static_cast<int>(threadIdx.x); n < shape.sequences * heads; n += kSumThreads) {
    const int unit = shape.mixing_per_head ? n * shape.heads + head : n;
    const SequenceRow s = shape.sequence(unit / shape.heads);
    if (i >= s.blocks || j >= s.blocks || (shape.masking != Masking::none && j > i)) continue;
    const std::int64_t first = (static_cast<std::int64_t>(unit) * shape.uniform.blocks + i) * parts;
    for (int part = 0; part < parts; ++part) sum += pair_sums[(first + part) * shape.uniform.blocks + j];
  }
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
  const std::int64_t elements =
      static_cast<std::int64_t>(shape.mixing_per_head ? shape.heads : 1) * shape.mixing_blocks * shape.mixing_blocks;
  constexpr std::int64_t kMost = 1 << 30;  // of one launch
  for (std::int64_t from = 0; from < elements; from += kMost)
    launch("mixing gradient", sum_pairs_kernel<T>, grid_of("mixing gradient", std::min(elements - from, kMost)),
           kSumThreads, 0, stream, shape, pair_sums, parts, from, d_mixing);
}

template void sum_pairs<float>(const Shape&, const float*, int, float*, cudaStream_t);
template void sum_pairs<double>(const Shape&, const double*, int, double*, cudaStream_t);

}  // namespace mhla::cuda
