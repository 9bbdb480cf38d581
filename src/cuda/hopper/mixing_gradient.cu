// d m[i, e] = sum over sequences and heads of <dS~_i, S_e> + <dz~_i, z_e>. Thread blocks keep their part of the M x M
// result in registers while 64 columns of dS~ and S at a time stream past, those of all heads one after another; then
// one ordered sum over thread blocks. More than 128 entries are shared between two kinds of thread blocks.
#include <algorithm>

#include "cuda/hopper/fragments.cuh"
#include "cuda/hopper/mixing_gradient.hpp"
#include "cuda/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kGroups = 4;
[[maybe_unused]] constexpr int kPairs = 2;  // a group's tiles of 64 x 64
constexpr int kThreads = kGroups * kWarpgroup + 32;
constexpr int kMostStages = 6;
constexpr int kEntryTiles = 2;  // of a thread block
constexpr int kMostBlocks = 256;
constexpr int kMostParts = 160;  // thread blocks of any device

struct Params {
  CUtensorMap d_mixed, S;
  int blocks, row_tiles, box_rows, entry_tiles, shares;  // shares: thread blocks per set of columns
  int stages, items, items_per_unit;
  float factor;
  float* partial;
};

struct Small {
  Barrier full[kMostStages], empty[kMostStages];
};

template <typename E>
__global__ __launch_bounds__(kThreads, 1) void gradient_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const int row_bytes = p.row_tiles * 64 * kBoxRowBytes, entry_bytes = p.entry_tiles * 64 * kBoxRowBytes;
  const int stage_bytes = row_bytes + entry_bytes;
  auto& small = *reinterpret_cast<Small*>(shared + p.stages * stage_bytes);
  const int group = warpgroup_id(), warp = static_cast<int>(threadIdx.x) / 32 % 4;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(small.full + s, 1);
      init_barrier(small.empty + s, kGroups);
    }
    fence_barrier_init();
  }
  __syncthreads();

  const int share = static_cast<int>(blockIdx.x) % p.shares, part = static_cast<int>(blockIdx.x) / p.shares;
  const int step = static_cast<int>(gridDim.x) / p.shares, entry0 = share * kEntryTiles * 64;
  Turn turn;
  if (group == kGroups) {
    if (lane_id() != 0) return;
    for (int item = part; item < p.items; item += step, turn.next(p.stages)) {
      const int unit = item / p.items_per_unit, column = (item - unit * p.items_per_unit) * kBoxColumns;
      unsigned char* const to = shared + turn.at * stage_bytes;
      wait(small.empty + turn.at, turn.parity ^ 1);
      arrive_expecting(small.full + turn.at, p.box_rows * kBoxRowBytes + entry_bytes);
      load_unit_box(to, p.d_mixed, column, 0, unit, small.full + turn.at);
      load_unit_box(to + row_bytes, p.S, column, entry0, unit, small.full + turn.at);
    }
    return;
  }

  float acc[kPairs][32];
#pragma unroll
  for (auto& tile : acc)
#pragma unroll
    for (float& x : tile) x = 0;
  const int pairs = p.row_tiles * p.entry_tiles;
  Turn last;
  bool pending = false;
  for (int item = part; item < p.items; item += step, turn.next(p.stages)) {
    wait(small.full + turn.at, turn.parity);
    const std::uint32_t rows = shared_address(shared) + static_cast<std::uint32_t>(turn.at * stage_bytes);
    const std::uint32_t entries = rows + static_cast<std::uint32_t>(row_bytes);
    product_fence();
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int pair = group + n * kGroups;
      if (pair >= pairs) continue;
      const int i = pair % p.row_tiles, e = pair / p.row_tiles;
#pragma unroll
      for (int k = 0; k < 4; ++k)
        warpgroup_product<E, false, false>(
            acc[n], product_operand(rows + static_cast<std::uint32_t>(i * 64 * kBoxRowBytes + k * 32), 16),
            product_operand(entries + static_cast<std::uint32_t>(e * 64 * kBoxRowBytes + k * 32), 16), true);
    }
    product_commit();
    product_wait<1>();
    if (pending && threadIdx.x % kWarpgroup == 0) arrive(small.empty + last.at);
    pending = true;
    last = turn;
  }
  product_wait<0>();
#pragma unroll
  for (auto& tile : acc) pin(tile);
  float* const to = p.partial + static_cast<std::int64_t>(part) * p.blocks * p.blocks;
#pragma unroll
  for (int n = 0; n < kPairs; ++n) {
    const int pair = group + n * kGroups;
    if (pair >= pairs) continue;
    const int row = pair % p.row_tiles * 64 + warp * 16 + (lane_id() >> 2);
    const int column = entry0 + pair / p.row_tiles * 64 + (lane_id() & 3) * 2;
#pragma unroll
    for (int x = 0; x < 32; ++x) {
      const int i = row + x / 2 % 2 * 8, e = column + x / 4 * 8 + x % 2;
      if (i < p.blocks && e < p.blocks) to[static_cast<std::int64_t>(i) * p.blocks + e] = acc[n][x] * p.factor;
    }
  }
#endif
}

// The denominators' term of one (sequence, head): 64 x 64 elements per thread block, 16 per thread.
__global__ __launch_bounds__(256) void sums_kernel(const float* d_mixed_z, const float* z, int blocks, int dim,
                                                   float* partial) {
  constexpr int kDepth = 32;
  __shared__ float a[kDepth][65], b[kDepth][65];
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blocks;
  const int i0 = static_cast<int>(blockIdx.y) * 64, e0 = static_cast<int>(blockIdx.z) * 64;
  const int x = static_cast<int>(threadIdx.x) % 16, y = static_cast<int>(threadIdx.x) / 16;
  float acc[4][4] = {};
  for (int d0 = 0; d0 < dim; d0 += kDepth) {
    __syncthreads();
    for (int n = static_cast<int>(threadIdx.x); n < 64 * kDepth; n += 256) {
      const int r = n / kDepth, d = n % kDepth;
      const bool inside = d0 + d < dim;
      a[d][r] = inside && i0 + r < blocks ? d_mixed_z[(first + i0 + r) * dim + d0 + d] : 0.0F;
      b[d][r] = inside && e0 + r < blocks ? z[(first + e0 + r) * dim + d0 + d] : 0.0F;
    }
    __syncthreads();
    for (int d = 0; d < kDepth; ++d)
#pragma unroll
      for (int m = 0; m < 4; ++m)
#pragma unroll
        for (int n = 0; n < 4; ++n) acc[m][n] += a[d][y * 4 + m] * b[d][x + n * 16];
  }
  float* const to = partial + static_cast<std::int64_t>(blockIdx.x) * blocks * blocks;
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      const int i = i0 + y * 4 + m, e = e0 + x + n * 16;
      if (i < blocks && e < blocks) to[static_cast<std::int64_t>(i) * blocks + e] = acc[m][n];
    }
}

__global__ void sum_kernel(const float* partial, int parts, int elements, float* d_mixing) {
  const int element = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (element >= elements) return;
  float sum = 0;
#pragma unroll 8
  for (int part = 0; part < parts; ++part) sum += partial[static_cast<std::int64_t>(part) * elements + element];
  d_mixing[element] = sum;
}

}  // namespace

std::int64_t mixing_gradient_workspace(const Shape& shape) {
  const std::int64_t blocks = shape.uniform.blocks;
  if (blocks > kMostBlocks) return 0;
  return (kMostParts + static_cast<std::int64_t>(shape.sequences) * shape.heads) * blocks * blocks;
}

template <typename E>
bool mixing_gradient(const MixingGradientArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int blocks = shape.uniform.blocks;
  if (shape.masking != Masking::none || shape.packed != nullptr || shape.initial > 0 || shape.mixing_per_head ||
      shape.heads != shape.kv_heads || blocks > kMostBlocks || blocks == 0 || shape.sequences == 0 ||
      shape.mixing_blocks != blocks || args.diagonal != nullptr || args.pairs != nullptr ||
      shape.matrix_size() < kBoxColumns || !available())
    return false;
  const int units = shape.sequences * shape.heads, columns = static_cast<int>(shape.matrix_size());
  Params p{};
  p.blocks = blocks;
  p.row_tiles = (blocks + 63) / 64;
  p.box_rows = (blocks + 15) / 16 * 16;
  p.entry_tiles = std::min(p.row_tiles, kEntryTiles);
  p.shares = (p.row_tiles + kEntryTiles - 1) / kEntryTiles;
  p.items_per_unit = (columns + kBoxColumns - 1) / kBoxColumns;
  p.items = units * p.items_per_unit;
  p.factor = static_cast<float>(args.factor);
  p.partial = args.partial;
  p.d_mixed = store_map(args.d_mixed, units, blocks, columns, p.box_rows);
  p.S = store_map(args.S, units, blocks, columns, p.entry_tiles * 64);
  const int stage = (p.row_tiles + p.entry_tiles) * 64 * kBoxRowBytes, fixed = static_cast<int>(sizeof(Small)) + 1024;
  p.stages = stages_that_fit(1, fixed, stage, kMostStages);
  const int parts = std::min({multiprocessors() / p.shares, p.items, kMostParts});
  launch("mixing gradient", gradient_kernel<E>, dim3(static_cast<unsigned>(parts * p.shares)), kThreads,
         static_cast<std::size_t>(fixed + p.stages * stage), stream, p);
  const int elements = blocks * blocks;
  if (args.z != nullptr) {
    const auto tiles = static_cast<unsigned>(p.row_tiles);
    launch("mixing gradient of z", sums_kernel, dim3(static_cast<unsigned>(units), tiles, tiles), 256, 0, stream,
           args.d_mixed_z, args.z, blocks, shape.key_pad, args.partial + static_cast<std::int64_t>(parts) * elements);
  }
  launch("mixing gradient sum", sum_kernel, dim3(static_cast<unsigned>((elements + 63) / 64)), 64, 0, stream,
         args.partial, parts + (args.z != nullptr ? units : 0), elements, args.d_mixing);
  return true;
}

template bool mixing_gradient<__nv_bfloat16>(const MixingGradientArgs<__nv_bfloat16>&, cudaStream_t);
template bool mixing_gradient<__half>(const MixingGradientArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
