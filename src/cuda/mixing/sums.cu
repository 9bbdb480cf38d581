// z~_i = sum_e m[i, e] z_e and its adjoint, in full precision: eight rows per thread block, one column per thread.
#include "cuda/mixing/mixing.hpp"
#include "cuda/mixing/unit.cuh"
#include "cuda/support/launch.hpp"

namespace mhla::cuda {
namespace {

constexpr int kRows = 8, kDepth = 128;
constexpr int kTogether = 16;  // loads in flight

template <typename E, bool kAdjoint>
__global__ void mix_sums_kernel(const __grid_constant__ MixingArgs<E> args) {
  using T = Accumulator<E>;
  __shared__ T weights[kRows][kDepth];
  const Shape& shape = args.shape;
  const Unit<kAdjoint> unit(shape, static_cast<int>(blockIdx.x));
  const int row0 = static_cast<int>(blockIdx.y) * kRows;
  if (row0 >= unit.rows) return;
  const int d = static_cast<int>(threadIdx.x);
  const int group = kAdjoint ? shape.heads / shape.kv_heads : 1;
  T sums[kRows] = {};
  for (int h = 0; h < group; ++h) {
    const int matrix = shape.matrix(unit.s.index, kAdjoint ? unit.head * group + h : unit.head);
    const T* const from = args.sums_from + (unit.from + h * unit.s.blocks) * shape.key_pad + d;
    for (int k0 = 0; k0 < unit.depth; k0 += kDepth) {
      const int depth = min(kDepth, unit.depth - k0);
      __syncthreads();
      for (int n = d; n < kRows * kDepth; n += static_cast<int>(blockDim.x)) {
        const int r = n / kDepth, k = n % kDepth;
        const bool inside = row0 + r < unit.rows && k < depth;
        weights[r][k] = !inside    ? T(0)
                        : kAdjoint ? shape.mixing_weight<T>(matrix, k0 + k, row0 + r)
                                   : shape.mixing_weight<T>(matrix, row0 + r, k0 + k);
      }
      __syncthreads();
      if (d >= shape.key_pad) continue;
      for (int first = 0; first < depth; first += kTogether) {
        T z[kTogether];
#pragma unroll
        for (int n = 0; n < kTogether; ++n)
          z[n] = first + n < depth ? from[static_cast<std::int64_t>(k0 + first + n) * shape.key_pad] : T(0);
#pragma unroll
        for (int n = 0; n < kTogether; ++n)
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const T weight = weights[r][first + n];
            if (weight != T(0)) sums[r] += weight * z[n];  // a block that is not seen may hold anything
          }
      }
    }
  }
  if (d >= shape.key_pad) return;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = row0 + r;
    if (row >= unit.rows) return;
    T sum = sums[r];
    if constexpr (kAdjoint) {
      const std::int64_t head = static_cast<std::int64_t>(unit.s.index) * shape.kv_heads + unit.head;
      if (args.d_final_z != nullptr && d < shape.key_dim)
        sum += args.d_final_z[(head * shape.final_blocks + shape.entry_block(row)) * shape.key_dim + d];
      if (args.d_initial_z != nullptr && row < shape.initial && d < shape.key_dim)
        args.d_initial_z[(head * shape.initial + row) * shape.key_dim + d] = sum;
    }
    args.sums_to[(unit.to + row) * shape.key_pad + d] = sum;
  }
}

}  // namespace

template <typename E, bool kAdjoint>
void mix_sums(const MixingArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int rows = shape.uniform.blocks + (kAdjoint ? shape.initial : 0);
  launch(
      "mixing of z", mix_sums_kernel<E, kAdjoint>,
      grid_of("mixing of z", shape.sequences * (kAdjoint ? shape.kv_heads : shape.heads), (rows + kRows - 1) / kRows),
      (shape.key_pad + 31) / 32 * 32, 0, stream, args);
}

#define MHLA_INSTANTIATE(E)                                             \
  template void mix_sums<E, false>(const MixingArgs<E>&, cudaStream_t); \
  template void mix_sums<E, true>(const MixingArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
MHLA_INSTANTIATE(float)
MHLA_INSTANTIATE(double)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
