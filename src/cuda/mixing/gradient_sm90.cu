// d m[i, e] = sum over sequences and heads of <dS~_i, S_e> + <dz~_i, z_e>. Thread blocks keep their part of the M x M
// result in registers while columns of dS~ and S stream past, those of all heads one after another; then one ordered
// sum over thread blocks. Warpgroups share the result, or, where it is one tile of 64 x 64, the columns. More than 128
// entries are shared between two kinds of thread blocks.
#include <algorithm>

#include "cuda/mixing/mixing_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/ring.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kGroups = 4;
[[maybe_unused]] constexpr int kPairs = 2;  // a warpgroup's tiles of 64 x 64
constexpr int kThreads = kGroups * kWarpgroup + 32;
constexpr int kMostStages = 6;
constexpr int kEntryTiles = 2;  // of a thread block
constexpr int kMostBlocks = 256;
constexpr int kMostParts = 160;  // thread blocks of any device

struct Params {
  CUtensorMap d_mixed, S;
  int blocks, row_tiles, entry_tiles, shares;  // shares: thread blocks per set of columns
  int boxes;                                   // of 64 columns in an item; several where the result is one tile
  // From box to box; a product reads whole tiles, and what comes of rows past those of a box is not used.
  int row_bytes, entry_bytes;
  int fetched_bytes;  // of a box, rows and entries
  int stages, items, items_per_unit;
  int ahead;  // block i sees entries below i + ahead
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
  const int box_bytes = p.row_bytes + p.entry_bytes, stage_bytes = p.boxes * box_bytes;
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
      const int unit = item / p.items_per_unit;
      int column = (item - unit * p.items_per_unit) * p.boxes * kBoxColumns;
      unsigned char* to = shared + turn.at * stage_bytes;
      wait(small.empty + turn.at, turn.parity ^ 1);
      arrive_expecting(small.full + turn.at, p.boxes * p.fetched_bytes);
      for (int box = 0; box < p.boxes; ++box, column += kBoxColumns, to += box_bytes) {
        load_unit_box(to, p.d_mixed, column, 0, unit, small.full + turn.at);
        load_unit_box(to + p.row_bytes, p.S, column, entry0, unit, small.full + turn.at);
      }
    }
    return;
  }

  float acc[kPairs][32];
#pragma unroll
  for (auto& tile : acc)
#pragma unroll
    for (float& x : tile) x = 0;
  const int pairs = p.row_tiles * p.entry_tiles, products = pairs * p.boxes;
  Turn last;
  bool pending = false;
  for (int item = part; item < p.items; item += step, turn.next(p.stages)) {
    wait(small.full + turn.at, turn.parity);
    product_fence();
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      const int product = group + n * kGroups;
      if (product >= products) continue;
      const int box = pairs == 1 ? product : 0, pair = pairs == 1 ? 0 : product;
      const int i = pair % p.row_tiles, e = pair / p.row_tiles;
      const auto rows = shared_address(shared) + static_cast<std::uint32_t>(turn.at * stage_bytes + box * box_bytes);
      const auto entries = rows + static_cast<std::uint32_t>(p.row_bytes);
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
#pragma unroll
  for (int n = 0; n < kPairs; ++n) {
    const int product = group + n * kGroups;
    if (product >= products) continue;
    const int box = pairs == 1 ? product : 0, pair = pairs == 1 ? 0 : product;
    float* const to = p.partial + static_cast<std::int64_t>(part * p.boxes + box) * p.blocks * p.blocks;
    const int row = pair % p.row_tiles * 64 + warp * 16 + (lane_id() >> 2);
    const int column = entry0 + pair / p.row_tiles * 64 + (lane_id() & 3) * 2;
#pragma unroll
    for (int x = 0; x < 32; ++x) {
      const int i = row + x / 2 % 2 * 8, e = column + x / 4 * 8 + x % 2;
      if (i < p.blocks && e < p.blocks)
        to[static_cast<std::int64_t>(i) * p.blocks + e] = e < i + p.ahead ? acc[n][x] * p.factor : 0.0F;
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

// Terms of d m[i, i] inside blocks: `parts` for each block of each (sequence, head).
struct Diagonal {
  const float* terms;
  int parts, units;
};
constexpr int kSumElements = 32, kSumShares = 32;  // of a thread block; of the terms of an element

__global__ void sum_kernel(const float* partial, int parts, int blocks, Diagonal diagonal, float* d_mixing) {
  __shared__ float sums[kSumShares][kSumElements];
  const int share = static_cast<int>(threadIdx.x) / kSumElements, column = static_cast<int>(threadIdx.x) % kSumElements;
  const int elements = blocks * blocks, element = static_cast<int>(blockIdx.x) * kSumElements + column;
  float sum = 0;
  if (element < elements) {
#pragma unroll 8
    for (int part = share; part < parts; part += kSumShares)
      sum += partial[static_cast<std::int64_t>(part) * elements + element];
    const int block = element / blocks;
    if (diagonal.terms != nullptr && block == element % blocks)
      for (int unit = share; unit < diagonal.units; unit += kSumShares)
        for (int part = 0; part < diagonal.parts; ++part)
          sum += diagonal.terms[(static_cast<std::int64_t>(unit) * blocks + block) * diagonal.parts + part];
  }
  sums[share][column] = sum;
  __syncthreads();
  if (share > 0 || element >= elements) return;
  for (int n = 1; n < kSumShares; ++n) sum += sums[n][column];
  d_mixing[element] = sum;
}

int boxes_of_item(const Shape& shape) { return shape.uniform.blocks <= 64 ? kGroups : 1; }

}  // namespace

std::int64_t mixing_gradient_workspace(const Shape& shape) {
  const std::int64_t blocks = shape.uniform.blocks;
  if (blocks > kMostBlocks) return 0;
  return (boxes_of_item(shape) * kMostParts + static_cast<std::int64_t>(shape.sequences) * shape.heads) * blocks *
         blocks;
}

template <typename E>
bool mixing_gradient(const MixingGradientArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int blocks = shape.uniform.blocks;
  const bool masked = shape.masking != Masking::none;
  if (shape.packed != nullptr || shape.initial > 0 || shape.matrices > 1 || shape.heads != shape.kv_heads ||
      blocks > kMostBlocks || blocks == 0 || shape.sequences == 0 || shape.mixing_blocks != blocks ||
      (masked && args.z != nullptr) || args.pairs != nullptr || shape.matrix_size() < kBoxColumns || !available())
    return false;
  const int units = shape.sequences * shape.heads, columns = static_cast<int>(shape.matrix_size());
  Params p{};
  p.blocks = blocks;
  p.row_tiles = (blocks + 63) / 64;
  p.entry_tiles = std::min(p.row_tiles, kEntryTiles);
  p.shares = (p.row_tiles + kEntryTiles - 1) / kEntryTiles;
  p.boxes = boxes_of_item(shape);
  const int box_rows = (blocks + 15) / 16 * 16, entry_rows = p.boxes > 1 ? box_rows : p.entry_tiles * 64;
  p.row_bytes = (p.boxes > 1 ? box_rows : p.row_tiles * 64) * kBoxRowBytes;
  p.entry_bytes = entry_rows * kBoxRowBytes;
  p.fetched_bytes = (box_rows + entry_rows) * kBoxRowBytes;
  p.items_per_unit = (columns + p.boxes * kBoxColumns - 1) / (p.boxes * kBoxColumns);
  p.items = units * p.items_per_unit;
  p.ahead = !masked ? blocks : shape.masking == Masking::block_causal ? 1 : 0;
  p.factor = static_cast<float>(args.factor);
  p.partial = args.partial;
  p.d_mixed = store_map(args.d_mixed, units, blocks, columns, box_rows);
  p.S = store_map(args.S, units, blocks, columns, entry_rows);
  const int stage = p.boxes * (p.row_bytes + p.entry_bytes);
  const int fixed = static_cast<int>(sizeof(Small)) + 1024 + (p.boxes > 1 ? kTileBytes : 0);  // alignment; a last tile
  p.stages = stages_that_fit(1, fixed, stage, kMostStages);
  const int parts = std::min({multiprocessors() / p.shares, p.items, kMostParts});
  launch("mixing gradient", gradient_kernel<E>, dim3(static_cast<unsigned>(parts * p.shares)), kThreads,
         static_cast<std::size_t>(fixed + p.stages * stage), stream, p);
  const int elements = blocks * blocks;
  if (args.z != nullptr) {
    const auto tiles = static_cast<unsigned>(p.row_tiles);
    launch("mixing gradient of z", sums_kernel, dim3(static_cast<unsigned>(units), tiles, tiles), 256, 0, stream,
           args.d_mixed_z, args.z, blocks, shape.key_pad,
           args.partial + static_cast<std::int64_t>(parts) * p.boxes * elements);
  }
  launch("mixing gradient sum", sum_kernel, dim3(static_cast<unsigned>((elements + kSumElements - 1) / kSumElements)),
         kSumElements * kSumShares, 0, stream, args.partial, parts * p.boxes + (args.z != nullptr ? units : 0), blocks,
         Diagonal{args.diagonal, args.diagonal_parts, units}, args.d_mixing);
  return true;
}

template bool mixing_gradient<__nv_bfloat16>(const MixingGradientArgs<__nv_bfloat16>&, cudaStream_t);
template bool mixing_gradient<__half>(const MixingGradientArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
