// One product per (sequence, head), [M, M] x [M, Dk Dv]. The weights stay in shared memory as A; a fifth role fetches
// all rows of some columns of S at a time as B. A task is 64 rows of the result for the columns of one stage;
// warpgroups take turns at tasks.
#include <algorithm>

#include "cuda/mixing/mixing_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kGroups = 4, kOutBuffers = 2;
constexpr int kThreads = kGroups * kWarpgroup + 32;
constexpr int kMostStages = 8;
constexpr int kOutBytes = 64 * kBoxRowBytes;

struct Params {
  CUtensorMap weights, from, to;
  int weight_rows, weight_columns;  // multiples of 16
  int weight_boxes, box_rows;       // of A in shared memory: 64 columns each
  int depth;                        // rows of B, a multiple of 16
  int row_tiles;                    // of 64 rows of the result
  int boxes;                        // of 64 columns in a stage
  int stages, items, items_per_unit;
};

struct Small {
  Barrier full[kMostStages], empty[kMostStages], weights;
};

template <typename E, bool kAdjoint>
__global__ __launch_bounds__(kThreads, 1) void mixing_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const int weight_box_bytes = p.box_rows * kBoxRowBytes, box_bytes = p.depth * kBoxRowBytes;
  const int stage_bytes = p.boxes * box_bytes;
  unsigned char* const stages = shared + p.weight_boxes * weight_box_bytes;
  unsigned char* const out = stages + p.stages * stage_bytes;
  auto& small = *reinterpret_cast<Small*>(out + kGroups * kOutBuffers * kOutBytes);
  const int group = warpgroup_id(), warp = static_cast<int>(threadIdx.x) / 32 % 4;
  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(small.full + s, 1);
      init_barrier(small.empty + s, p.row_tiles);
    }
    init_barrier(&small.weights, 1);
    fence_barrier_init();
  }
  __syncthreads();

  Turn turn;
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  if (group == kGroups) {
    if (lane_id() != 0) return;
    arrive_expecting(&small.weights, p.weight_boxes * p.weight_rows * kBoxRowBytes);
    for (int b = 0; b < p.weight_boxes; ++b)
      load_matrix_box(shared + b * weight_box_bytes, p.weights, b * kBoxColumns, 0, &small.weights);
    for (int item = first; item < p.items; item += step, turn.next(p.stages)) {
      const int unit = item / p.items_per_unit, column = (item - unit * p.items_per_unit) * p.boxes * kBoxColumns;
      wait(small.empty + turn.at, turn.parity ^ 1);
      arrive_expecting(small.full + turn.at, stage_bytes);
      for (int b = 0; b < p.boxes; ++b)
        load_unit_box(stages + turn.at * stage_bytes + b * box_bytes, p.from, column + b * kBoxColumns, 0, unit,
                      small.full + turn.at);
    }
    return;
  }

  wait(&small.weights, 0);
  const std::uint32_t A = shared_address(shared);
  int next = group, buffer = 0;  // tasks until the next one of this group
  for (int item = first; item < p.items; item += step, turn.next(p.stages)) {
    const int unit = item / p.items_per_unit, column = (item - unit * p.items_per_unit) * p.boxes * kBoxColumns;
    for (int tile = 0; tile < p.row_tiles; ++tile) {
      if (next-- > 0) continue;
      next = kGroups - 1;
      wait_in_turn(small.full + turn.at, small.empty + turn.at, turn.parity);
      for (int b = 0; b < p.boxes; ++b, buffer ^= 1) {
        const std::uint32_t B =
            shared_address(stages) + static_cast<std::uint32_t>(turn.at * stage_bytes + b * box_bytes);
        float acc[32];
        product_fence();
        pin(acc);
#pragma unroll 4
        for (int k = 0; k < p.depth; k += 16) {
          const int at = kAdjoint ? tile * weight_box_bytes + k * kBoxRowBytes
                                  : k / 64 * weight_box_bytes + tile * 64 * kBoxRowBytes + k % 64 * 2;
          warpgroup_product<E, kAdjoint, true>(acc, product_operand(A + static_cast<std::uint32_t>(at), 16),
                                               product_operand(B + static_cast<std::uint32_t>(k * kBoxRowBytes), 16),
                                               k > 0);
        }
        product_commit();
        if (threadIdx.x % kWarpgroup == 0) wait_stores_read<kOutBuffers - 1>();
        product_wait<0>();
        pin(acc);
        sync_warpgroup(group);
        unsigned char* const to = out + (group * kOutBuffers + buffer) * kOutBytes;
        put_boxes<E>(shared_address(to), 64, warp * 16, acc);
        fence_shared_writes();
        sync_warpgroup(group);
        if (threadIdx.x % kWarpgroup == 0) {
          store_unit_box(p.to, column + b * kBoxColumns, tile * 64, unit, to);
          commit_stores();
        }
      }
      if (threadIdx.x % kWarpgroup == 0) arrive(small.empty + turn.at);
    }
  }
  if (threadIdx.x % kWarpgroup == 0) wait_stores_read();
#endif
}

}  // namespace

template <typename E, bool kAdjoint>
bool mix(const MixingArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  constexpr int kMostBlocks = 256;
  const int blocks = shape.uniform.blocks;
  if (shape.masking != Masking::none || shape.packed != nullptr || shape.initial > 0 || shape.matrices > 1 ||
      shape.heads != shape.kv_heads || blocks > kMostBlocks || blocks == 0 || shape.sequences == 0 ||
      args.d_final_S != nullptr || shape.matrix_size() < kBoxColumns || !available())
    return false;
  const int units = shape.sequences * shape.heads;
  Params p{};
  p.weight_rows = weight_rows(shape);
  p.weight_columns = weight_columns(shape);
  p.weight_boxes = (p.weight_columns + 63) / 64;
  p.row_tiles = (blocks + 63) / 64;
  p.depth = p.weight_rows;
  p.box_rows = kAdjoint ? p.weight_rows : p.row_tiles * 64;
  constexpr int kStageBytes = 16 * 1024;
  p.boxes = std::clamp(kStageBytes / (p.depth * kBoxRowBytes), 1, 8);
  const int columns = static_cast<int>(shape.matrix_size());
  p.items_per_unit = (columns + p.boxes * kBoxColumns - 1) / (p.boxes * kBoxColumns);
  p.items = units * p.items_per_unit;
  p.weights = matrix_map(args.weights, p.weight_rows, p.weight_columns, p.weight_rows);
  p.from = store_map(args.from, units, blocks, columns, p.depth);
  p.to = store_map(static_cast<const E*>(args.to), units, blocks, columns, std::min(64, p.weight_rows));
  const int fixed = p.weight_boxes * p.box_rows * kBoxRowBytes + kGroups * kOutBuffers * kOutBytes +
                    static_cast<int>(sizeof(Small)) + 1024;
  const int stage = p.boxes * p.depth * kBoxRowBytes;
  p.stages = stages_that_fit(1, fixed, stage, kMostStages);
  launch("mixing", mixing_kernel<E, kAdjoint>, dim3(static_cast<unsigned>(std::min(p.items, multiprocessors()))),
         kThreads, static_cast<std::size_t>(fixed + p.stages * stage), stream, p);
  return true;
}

#define MHLA_INSTANTIATE(E)                                               \
  template bool mix<E, false>(const MixingArgs<E>&, cudaStream_t stream); \
  template bool mix<E, true>(const MixingArgs<E>&, cudaStream_t stream);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda::hopper
