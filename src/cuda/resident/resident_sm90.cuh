// What both passes over a resident head share.
//
// Shared memory holds a ring of token tiles, 64 rows each as a bulk copy writes them, and 16 slots, one for the 64 x 64
// summary of each block. A slot is 128 bytes longer than its matrix: pieces are exchanged by their address, so the same
// piece of different slots lies in different banks, and a mixing over slots reads without conflicts.
//
// Four warpgroups take turns at blocks; a fifth, which gives its registers up, fetches tiles in the order of their use,
// across blocks, stages and heads. Two heads of 32 columns are one of 64 whose summaries are zero off the diagonal;
// kernels for such pairs (kPaired) are compiled apart.
#pragma once

#include "cuda/resident/resident_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/ring.cuh"
#include "cuda/support/hopper/tensor_map.hpp"

namespace mhla::cuda::hopper::resident {

inline constexpr int kGroups = 4, kConsumers = kGroups * kWarpgroup, kThreads = kConsumers + kWarpgroup;
inline constexpr int kBlocks = 16, kColumns = 64;
inline constexpr int kSlotBytes = kColumns * kBoxRowBytes + kBoxRowBytes;
using Tiles = Ring<10>;
static_assert((kGroups - 1) * 3 + 1 <= Tiles::kCount, "from a tile of three tensors to the next: see wait_in_turn()");
inline constexpr int kProducerRegisters = 32, kConsumerRegisters = 112;

struct Small {
  float z[kBlocks][kColumns], mixed_z[kBlocks][kColumns], d_mixed_z[kBlocks][kColumns];
  float g[kGroups][2][kTileRows];
  float weights[kBlocks][kBlocks];
  Tiles::Barriers barriers;
};
inline constexpr int kSharedBytes =
    Tiles::kBytes + kBlocks * kSlotBytes + static_cast<int>(sizeof(Small)) + 1024;  // the last: alignment

// How the heads of a call become units of 64 columns.
struct Units {
  int count = 0, per_sequence = 1, blocks = 0;
  bool paired = false;  // of two heads

  __device__ int batch(int unit) const { return unit / per_sequence; }
  __device__ int number(int unit) const { return unit % per_sequence; }
};
inline Units units_of(const Shape& shape) {
  Units units;
  units.paired = shape.key_dim < kColumns;
  units.per_sequence = units.paired ? shape.heads / 2 : shape.heads;
  units.count = shape.sequences * units.per_sequence;
  units.blocks = shape.uniform.blocks;
  return units;
}

struct Memory {
  Tiles ring;
  std::uint32_t slots;
  Small* small;

  __device__ explicit Memory(unsigned char* unaligned) {
    ring.tiles = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
    slots = shared_address(slot_memory());
    small = reinterpret_cast<Small*>(slot_memory() + kBlocks * kSlotBytes);
    ring.barriers = &small->barriers;
  }
  __device__ unsigned char* slot_memory() const { return ring.tiles + Tiles::kBytes; }
  __device__ std::uint32_t slot(int b) const { return slots + static_cast<std::uint32_t>(b * kSlotBytes); }
  // Address of a 16-byte piece of row `row` of slot b.
  __device__ std::uint32_t slot_piece(int b, int row, int piece) const {
    return slot(b) + static_cast<std::uint32_t>(row * kBoxRowBytes + ((piece ^ ((row + b) & 7)) << 4));
  }

  // By all threads, before anything else. What belongs to blocks past the last one stays zero.
  __device__ void prepare() const {
    static_assert(sizeof(Small) % 16 == 0);
    constexpr int kBytes = kBlocks * kSlotBytes + static_cast<int>(sizeof(Small));
    for (int n = static_cast<int>(threadIdx.x) * 16; n < kBytes; n += kThreads * 16)
      *reinterpret_cast<uint4*>(slot_memory() + n) = make_uint4(0, 0, 0, 0);
    __syncthreads();
    if (threadIdx.x == 0) ring.prepare(4);
    __syncthreads();
  }
};

// The accumulators of a 64 x 64 matrix whose contraction ran over tokens, rounded into slot b.
template <typename E>
__device__ void put_slot(const Memory& memory, int b, int warp, bool paired, float factor, float (&acc)[32]) {
  const int lane = lane_id();
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const bool zero = paired && (j < 4) != (warp < 2);
#pragma unroll
    for (int e = 0; e < 4; ++e) acc[j * 4 + e] = zero ? 0.0F : acc[j * 4 + e] * factor;
  }
#pragma unroll
  for (int j = 0; j < 8; j += 2) {
    const std::uint32_t fragment[4] = {pack<E>(acc[j * 4], acc[j * 4 + 1]), pack<E>(acc[j * 4 + 2], acc[j * 4 + 3]),
                                       pack<E>(acc[j * 4 + 4], acc[j * 4 + 5]),
                                       pack<E>(acc[j * 4 + 6], acc[j * 4 + 7])};
    store_matrices(memory.slot_piece(b, warp * 16 + (lane & 15), j + (lane >> 4)), fragment);
  }
}

// Transposed fragments of a tile: rows are this warp's 16 columns, the contraction runs over tokens.
template <typename E>
__device__ void load_columns(std::uint32_t (&a)[4][4], std::uint32_t tile, int warp, const PairFeature<E>& feature) {
  const int lane = lane_id();
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    load_matrices<true>(a[k], box_piece(tile, k * 16 + (lane & 7) + (lane >> 4) * 8, warp * 2 + (lane >> 3 & 1)));
    feature.apply(a[k]);
  }
}

// B of a product for step k of its contraction: the slot's rows contract, or its columns.
template <bool kRowsContract>
__device__ std::uint64_t slot_operand(std::uint32_t slot, int k) {
  return product_operand(slot + static_cast<std::uint32_t>(kRowsContract ? k * 16 * kBoxRowBytes : k * 32), 16);
}

// Products with a slot have four steps and give eight 8-column tiles. Where a slot holds two heads (kPaired), the tiles
// of a head are made from its own steps alone, one head after the other: the zeros off the diagonal would turn an
// infinity of one head into a NaN of the other. A part is what is made at once.
template <bool kPaired>
struct Parts {
  static constexpr int kCount = kPaired ? 2 : 1, kSteps = 4 / kCount, kTiles = 8 / kCount;

  // product(k, whether it adds to what is there) for the steps of a part.
  template <typename Product>
  __device__ static void multiply(int part, Product&& product) {
#pragma unroll
    for (int k = part * kSteps; k < (part + 1) * kSteps; ++k) product(k, k > part * kSteps);
  }
  // f(8-column tile) for those of a part.
  template <typename F>
  __device__ static void for_each_tile(int part, F&& f) {
#pragma unroll
    for (int j = part * kTiles; j < (part + 1) * kTiles; ++j) f(j);
  }
  // The warp's 16 rows of a part's columns, rounded, into a box of 64 rows.
  template <typename E>
  __device__ static void put(int part, std::uint32_t box, int warp, const float (&acc)[32]) {
    const int lane = lane_id();
#pragma unroll
    for (int j = part * kTiles; j < (part + 1) * kTiles; j += 2) {
      const std::uint32_t fragment[4] = {pack<E>(acc[j * 4], acc[j * 4 + 1]), pack<E>(acc[j * 4 + 2], acc[j * 4 + 3]),
                                         pack<E>(acc[j * 4 + 4], acc[j * 4 + 5]),
                                         pack<E>(acc[j * 4 + 6], acc[j * 4 + 7])};
      store_matrices(box_piece(box, warp * 16 + (lane & 15), j + (lane >> 4)), fragment);
    }
  }
};

template <typename E>
__device__ float2 unpack(std::uint32_t pair) {
  const auto& x = reinterpret_cast<const E(&)[2]>(pair);
  return {to_accumulator(x[0]), to_accumulator(x[1])};
}
__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// S_b and z_b of one block by one warpgroup, from tiles n (k) and n + 1 (v), then `step` further, ...
template <typename E>
__device__ void summarize(const Memory& memory, int b, unsigned n, unsigned step, int tiles, int warp, bool paired,
                          float factor, const PairFeature<E>& feature) {
  using Math = HalfMath<E>;
  const auto ones = Math::ones();
  float acc[32], sums[4] = {0, 0, 0, 0};
  for (int tile = 0; tile < tiles; ++tile, n += step) {
    memory.ring.wait_for(n);
    std::uint32_t a[4][4];
    load_columns(a, memory.ring.address(n), warp, feature);
    memory.ring.wait_for(n + 1);
    product_fence();
    pin(acc);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      warpgroup_product<E, true>(acc, a[k], slot_operand<true>(memory.ring.address(n + 1), k), tile > 0 || k > 0);
    product_commit();
#pragma unroll
    for (int k = 0; k < 4; ++k) Math::mma(sums, typename Math::A{{a[k][0], a[k][1], a[k][2], a[k][3]}}, ones);
    product_wait<0>();
    pin(acc);
    memory.ring.release(n);
    memory.ring.release(n + 1);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = Math::column_sum(sums, half);
    if ((lane_id() & 3) == 0) memory.small->z[b][warp * 16 + half * 8 + (lane_id() >> 2)] = sum;
  }
  put_slot<E>(memory, b, warp, paired, factor, acc);
}

// The weights of a unit, by all consumers; they are there after the next barrier.
__device__ inline void load_weights(const Memory& memory, const Shape& shape, int matrix, int blocks) {
  const int n = static_cast<int>(threadIdx.x), i = n / kBlocks, e = n % kBlocks;
  if (n < kBlocks * kBlocks)
    memory.small->weights[i][e] = i < blocks && e < blocks ? shape.weight<float>(matrix, i, e) : 0.0F;
}

// Every slot becomes the mixture of all: S~_i = sum_e m[i, e] S_e, or dS_e = sum_i m[i, e] dS~_i. A warp has four rows
// of all slots, reads them whole and writes them back.
template <typename E, bool kAdjoint>
__device__ void mix_slots(const Memory& memory, int blocks, int warp) {
  using Math = HalfMath<E>;
  const int lane = lane_id(), row = lane >> 2, column = (lane & 3) * 2;
  const auto weight = [&](int to, int from) {
    return kAdjoint ? memory.small->weights[from][to] : memory.small->weights[to][from];
  };
  const auto weights = [&](int to, int from) { return pack<E>(weight(to, from), weight(to, from + 1)); };
  const typename Math::A a{
      {weights(row, column), weights(row + 8, column), weights(row, column + 8), weights(row + 8, column + 8)}};
  const int slot = lane & 15;
#pragma unroll
  for (int r = warp * 4; r < warp * 4 + 4; ++r) {
    std::uint32_t b[4][4];
#pragma unroll
    for (int c = 0; c < 4; ++c) load_matrices<true>(b[c], memory.slot_piece(slot, r, c * 2 + (lane >> 4)));
    __syncwarp();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      std::uint32_t mixed[4];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float acc[4] = {0, 0, 0, 0};
        Math::mma(acc, a, typename Math::B{{b[c][half * 2], b[c][half * 2 + 1]}});
        mixed[half * 2] = row < blocks ? pack<E>(acc[0], acc[1]) : 0;
        mixed[half * 2 + 1] = row + 8 < blocks ? pack<E>(acc[2], acc[3]) : 0;
      }
      store_matrices(memory.slot_piece(slot, r, c * 2 + (lane >> 4)), mixed);
    }
  }
}
// The same for vectors in full precision, by all consumers.
template <bool kAdjoint>
__device__ void mix_vectors(const Small& small, const float (&from)[kBlocks][kColumns],
                            float (&to)[kBlocks][kColumns]) {
  for (int n = static_cast<int>(threadIdx.x); n < kBlocks * kColumns; n += kConsumers) {
    const int row = n / kColumns, d = n % kColumns;
    float sum = 0;
#pragma unroll
    for (int b = 0; b < kBlocks; ++b) sum += (kAdjoint ? small.weights[b][row] : small.weights[row][b]) * from[b][d];
    to[row][d] = sum;
  }
}

// The order in which the tiles of a unit pass: four blocks at a time, one for each warpgroup, tile by tile, `tensors`
// tiles in a row for each.

// f(block, tile) in this order.
template <typename F>
__device__ void for_all_tiles(int blocks, int tiles, F&& f) {
  for (int b0 = 0; b0 < blocks; b0 += kGroups)
    for (int tile = 0; tile < tiles; ++tile)
      for (int b = b0; b < min(b0 + kGroups, blocks); ++b) f(b, tile);
}
// Fetches a unit's tiles of each of the tensors, n being the number of the first.
template <typename... Maps>
__device__ void fetch_tiles(const Memory& memory, const Boxes& boxes, const Units& units, int unit, unsigned& n,
                            const Maps&... maps) {
  const int column = units.number(unit) * kColumns, batch = units.batch(unit);
  for_all_tiles(units.blocks, boxes.tiles, [&](int b, int tile) {
    const BoxPlace at = boxes.place(boxes.block(b), tile, column, batch);
    (memory.ring.fetch(n++, [&](void* to, Barrier* full) { load_box(to, maps, at, full); }), ...);
  });
}
// f(block, number of its first tile, step from tile to tile) for the blocks of warpgroup `group`; `first` moves on past
// the unit.
template <typename F>
__device__ void for_own_blocks(unsigned& first, int group, int blocks, int tiles, int tensors, F&& f) {
  for (int b = group; b < blocks; b += kGroups) {
    const int b0 = b - group, together = min(kGroups, blocks - b0);
    f(b, first + static_cast<unsigned>((b0 * tiles + group) * tensors), static_cast<unsigned>(together * tensors));
  }
  first += static_cast<unsigned>(blocks * tiles * tensors);
}

// A unit's summaries and their mixtures, S~_i in slot i, from tiles n, n + 1, ... of k and v; `p` are the parameters of
// either pass. keep(e) by the warpgroup that has just put S_e into its slot. All consumers see the mixtures afterwards.
template <typename E, typename Params, typename Keep>
__device__ void summarize_and_mix(const Memory& memory, const Params& p, int unit, unsigned& n, int group, int warp,
                                  const PairFeature<E>& feature, int blocks, int tiles, bool normalize, Keep&& keep) {
  const Shape& shape = p.args.shape;
  load_weights(memory, shape, shape.matrix(p.units.batch(unit), p.units.number(unit)), blocks);
  for_own_blocks(n, group, blocks, tiles, 2, [&](int e, unsigned at, unsigned next) {
    summarize<E>(memory, e, at, next, tiles, warp % 4, p.units.paired, static_cast<float>(p.args.store_factor),
                 feature);
    keep(e);
  });
  sync_threads(kConsumers);
  mix_slots<E, false>(memory, blocks, warp);
  if (normalize) mix_vectors<false>(*memory.small, memory.small->z, memory.small->mixed_z);
  fence_shared_writes();
  sync_threads(kConsumers);
}

// Where the last blocks leave warpgroups without one, these wait, so as not to be a round of the ring ahead.
__device__ inline void end_unit(int blocks) {
  if (blocks % kGroups != 0) sync_threads(kConsumers);
}

}  // namespace mhla::cuda::hopper::resident
