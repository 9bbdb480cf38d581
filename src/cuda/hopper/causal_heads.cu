// A thread block takes 32 columns of the summaries of a head through all blocks in order. Four thread blocks of a
// cluster have neighbouring columns and fetch x and y for one another. Roles, by warpgroup:
//
//   0, 1  64 rows of the summaries each: T_i for the readout, then S_i
//   2, 3  the readout of every second block
//   4     a warp each for fetching and for what leaves: out, S, T
//
// Mixing. Blocks are taken in groups of eight. Within a group, T_i adds what precedes it in the group, out of registers:
// a thread always has the same elements of a matrix. Between groups, matrices lie in 16 slots and are mixed by whole
// groups as products over slots: after blocks 0 to 7 their share of T_8 .. T_15 goes to slots 8 to 15, where S_8 .. S_15
// replace them one by one; after block 15 the slots, mixed in place, become the shares of T_16 .. T_31; after block 23
// T_24 .. T_31 gain what blocks 16 to 23 add. A warp only ever touches its own part of the slots.
#include <algorithm>

#include "cuda/hopper/causal_heads.hpp"
#include "cuda/hopper/cluster.cuh"
#include "cuda/hopper/narrow.cuh"
#include "cuda/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kCluster = 4, kEveryone = (1 << kCluster) - 1;
constexpr int kBlock = 64, kDepth = 128, kMostBlocks = 32, kGroup = 8, kSlots = 16;
constexpr int kSummaryThreads = 2 * kWarpgroup, kConsumers = 4 * kWarpgroup, kThreads = kConsumers + kWarpgroup;
constexpr int kSummaryWarps = kSummaryThreads / 32, kReadoutWarps = kWarpgroup / 32;
constexpr int kStages = 2;
constexpr int kTileBytes = kBlock * kBoxRowBytes, kTiles = 4;  // x, x, y, y
constexpr int kRestBytes = kBlock * kNarrowRowBytes, kMatrixBytes = kDepth * kNarrowRowBytes;
constexpr int kSlotBytes = kMatrixBytes + 16;  // the same piece of different slots lies in different banks
constexpr int kAhead = 4;                      // blocks, from asking the L2 cache for tokens to fetching them

template <typename E>
struct Params {
  CUtensorMap x, y, rest, out, summaries, mixtures;
  CausalHeadArgs<E> args;
  Boxes boxes;
  int units;  // each a head and the columns of a cluster
  int parts;  // units of a head
  int blocks;
};

template <typename E>
struct Memory {
  unsigned char tokens[kStages][kTiles][kTileBytes];
  unsigned char rest[kStages][kRestBytes];  // the result leaves from here
  unsigned char mixture[kStages][kMatrixBytes];
  unsigned char summary[kMatrixBytes];  // on its way to device memory
  unsigned char slots[kSlots][kSlotBytes];
  E weights[kMostBlocks][kMostBlocks];  // by place in the order of blocks: of S (column) in T (row)
  Barrier tokens_full[kStages], tokens_empty[kStages], rest_full[kStages], rest_empty[kStages];
  Barrier mixture_full[kStages], mixture_empty[kStages], out_full[kStages], summary_full, summary_empty;
};
constexpr int kSharedLimit = 227 * 1024;
static_assert(sizeof(Memory<__half>) <= kSharedLimit);

// Where a warpgroup stands: step n is block t of a unit.
template <typename E>
struct Step {
  const Params<E>& p;
  unsigned n = 0;
  int unit, t = 0, stride;

  __device__ explicit Step(const Params<E>& params)
      : p(params), unit(static_cast<int>(blockIdx.x) / kCluster), stride(static_cast<int>(gridDim.x) / kCluster) {}
  __device__ explicit operator bool() const { return unit < p.units; }
  __device__ void next() {
    ++n;
    if (++t == p.blocks) {
      t = 0;
      unit += stride;
    }
  }
  __device__ int stage() const { return static_cast<int>(n % kStages); }
  __device__ int parity() const { return static_cast<int>(n / kStages & 1); }

  __device__ int block() const { return p.args.reversed ? p.blocks - 1 - t : t; }
  __device__ int head() const { return unit / p.parts % p.args.shape.heads; }
  __device__ int sequence() const { return unit / p.parts / p.args.shape.heads; }
  __device__ int slice(int rank) const { return unit % p.parts * kCluster + rank; }
  __device__ BoxPlace place(int column) const {
    return p.boxes.place(p.boxes.block(block()), 0, column, sequence());
  }
  __device__ BoxPlace narrow_place(int rank) const {
    return place(head() * p.args.shape.value_dim + slice(rank) * kNarrowColumns);
  }
  __device__ int matrix_row() const {
    return static_cast<int>(p.args.shape.mixed_row(p.args.shape.sequence(sequence()), head(), block())) * kDepth;
  }
};

// ---- summaries

// A matrix as a thread of the summary warpgroups has it: accumulators 2 m and 2 m + 1 in number m.
struct Packed {
  std::uint32_t pairs[8];
};

template <typename E>
__device__ float2 unpack(std::uint32_t pair) {
  const auto& x = reinterpret_cast<const E(&)[2]>(pair);
  return {to_accumulator(x[0]), to_accumulator(x[1])};
}
template <typename E>
__device__ void add(float (&T)[16], float weight, const Packed& S) {
#pragma unroll
  for (int m = 0; m < 8; ++m) {
    const float2 x = unpack<E>(S.pairs[m]);
    T[m * 2] += weight * x.x;
    T[m * 2 + 1] += weight * x.y;
  }
}

template <typename E>
class Slots {
 public:
  __device__ Slots(Memory<E>& memory) : memory_(memory), first_(shared_address(memory.slots[0])) {}

  __device__ Packed get(int slot) const {
    Packed S;
#pragma unroll
    for (int half = 0; half < 2; ++half)
      reinterpret_cast<uint4*>(S.pairs)[half] = *reinterpret_cast<const uint4*>(own(slot, half));
    return S;
  }
  __device__ void put(int slot, const Packed& S) const {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      *reinterpret_cast<uint4*>(own(slot, half)) = reinterpret_cast<const uint4*>(S.pairs)[half];
  }

  // Slots 0 to 7 hold the group before `first`: what it adds to the mixtures of `first` and the seven that follow goes
  // to slots 8 to 15, in addition to what is there or in place of it.
  __device__ void mix_group(int first, bool in_addition) const {
    const int lane = lane_id();
    const typename Math::A a{{weights(first + (lane >> 2), first - kGroup + (lane & 3) * 2), 0, 0, 0}};
    __syncwarp();
#pragma unroll 2
    for (int piece = 0; piece < kPieces; piece += 4) {
      std::uint32_t from[4], to[4];
      load_matrices<true>(from, at(lane & 7, piece + (lane >> 3)));
      const std::uint32_t there = at(kGroup + (lane & 7), piece + (lane >> 3));
      if (in_addition) load_matrices<false>(to, there);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        float acc[4] = {0, 0, 0, 0};
        if (in_addition) {
          const float2 x = unpack<E>(to[c]);
          acc[0] = x.x, acc[1] = x.y;
        }
        Math::mma(acc, a, typename Math::B{{from[c], 0}});
        to[c] = pack<E>(acc[0], acc[1]);
      }
      store_matrices(there, to);
    }
    __syncwarp();
  }

  // All slots become their shares of the mixtures of kSlots and the fifteen that follow.
  __device__ void mix_all() const {
    const int lane = lane_id(), row = kSlots + (lane >> 2), column = (lane & 3) * 2;
    const typename Math::A a{
        {weights(row, column), weights(row + 8, column), weights(row, column + 8), weights(row + 8, column + 8)}};
    __syncwarp();
#pragma unroll 4
    for (int piece = 0; piece < kPieces; piece += 2) {
      const std::uint32_t there = at(lane & 15, piece + (lane >> 4));
      std::uint32_t from[4], to[4];
      load_matrices<true>(from, there);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        float acc[4] = {0, 0, 0, 0};
        Math::mma(acc, a, typename Math::B{{from[c * 2], from[c * 2 + 1]}});
        to[c * 2] = pack<E>(acc[0], acc[1]);
        to[c * 2 + 1] = pack<E>(acc[2], acc[3]);
      }
      store_matrices(there, to);
    }
    __syncwarp();
  }

 private:
  using Math = HalfMath<E>;
  // A slot is two halves of 16 bytes per thread; a warp's part of it 64 pieces of 16 bytes.
  static constexpr int kHalf = kMatrixBytes / 2, kPieces = kMatrixBytes / kSummaryWarps / 16;

  __device__ unsigned char* own(int slot, int half) const {
    return memory_.slots[slot] + half * kHalf + static_cast<int>(threadIdx.x) * 16;
  }
  __device__ std::uint32_t at(int slot, int piece) const {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return first_ + static_cast<std::uint32_t>(slot * kSlotBytes + piece / 32 * kHalf + (warp * 32 + piece % 32) * 16);
  }
  __device__ std::uint32_t weights(int to, int from) const {
    return *reinterpret_cast<const std::uint32_t*>(&memory_.weights[to][from]);
  }

  Memory<E>& memory_;
  std::uint32_t first_;
};

// The weights of a unit's head, by all summary threads.
template <typename E>
__device__ void load_weights(Memory<E>& memory, const Params<E>& p, int head) {
  sync_threads(kSummaryThreads);
  for (int n = static_cast<int>(threadIdx.x); n < kMostBlocks * kMostBlocks; n += kSummaryThreads) {
    const int to = n / kMostBlocks, from = n % kMostBlocks, last = p.blocks - 1;
    float weight = 0;
    if (from < to && to <= last)
      weight = p.args.reversed ? p.args.shape.template weight<float>(head, last - from, last - to)
                               : p.args.shape.template weight<float>(head, to, from);
    memory.weights[to][from] = to_element<E>(weight);
  }
  sync_threads(kSummaryThreads);
}

template <typename E>
__device__ void summarize(Memory<E>& memory, const Params<E>& p, bool keeping) {
  const int half = warpgroup_id(), warp = static_cast<int>(threadIdx.x) / 32, lane = lane_id();
  const auto summary_factor = static_cast<float>(p.args.summary_factor);
  const Slots<E> slots(memory);
  Packed recent[kGroup - 1];  // the blocks of this group so far
  int loaded = -1;            // the head whose weights are there
  for (Step<E> step(p); step; step.next()) {
    const int stage = step.stage(), parity = step.parity(), t = step.t;
    const int head = p.args.shape.mixing_per_head ? step.head() : 0;
    if (head != loaded) {
      load_weights(memory, p, head);
      loaded = head;
    }

    wait(memory.tokens_full + stage, parity);
    wait(memory.rest_full + stage, parity);
    const std::uint32_t y = shared_address(memory.tokens[stage][2 + half]), rest = shared_address(memory.rest[stage]);
    float S[16];
    product_fence();
    pin(S);
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k)
      narrow_product<E>(S, product_operand(y + static_cast<std::uint32_t>(k * 16 * kBoxRowBytes), 16),
                        narrow_operand(rest + static_cast<std::uint32_t>(k * 16 * kNarrowRowBytes)), k > 0);
    product_commit();

    if (t == kGroup || t == kSlots + kGroup) slots.mix_group(t, t > kSlots);
    if (t == kSlots) slots.mix_all();
    float T[16];
#pragma unroll
    for (float& x : T) x = 0;
    if (t >= kGroup) add<E>(T, 1.0F, slots.get(t % kSlots));
    const uint4 weights = *reinterpret_cast<const uint4*>(memory.weights[t] + t / kGroup * kGroup);
    const auto weight = [&](int e) {
      const float2 pair = unpack<E>(reinterpret_cast<const std::uint32_t(&)[4]>(weights)[e / 2]);
      return e % 2 == 0 ? pair.x : pair.y;
    };
    const auto add_recent = [&]<int... kPlace>(std::integer_sequence<int, kPlace...>) {
      (add<E>(T, weight(kPlace), recent[kPlace]), ...);
    };
    switch (t % kGroup) {
      case 1: add_recent(std::make_integer_sequence<int, 1>{}); break;
      case 2: add_recent(std::make_integer_sequence<int, 2>{}); break;
      case 3: add_recent(std::make_integer_sequence<int, 3>{}); break;
      case 4: add_recent(std::make_integer_sequence<int, 4>{}); break;
      case 5: add_recent(std::make_integer_sequence<int, 5>{}); break;
      case 6: add_recent(std::make_integer_sequence<int, 6>{}); break;
      case 7: add_recent(std::make_integer_sequence<int, 7>{}); break;
    }

    product_wait<0>();
    pin(S);
    __syncwarp();
    if (lane < kCluster) arrive_at(memory.tokens_empty + stage, lane);
    wait(memory.mixture_empty + stage, parity ^ 1);
    put_narrow<E>(shared_address(memory.mixture[stage]), warp * 16, T);
    fence_shared_writes();
    __syncwarp();
    if (lane == 0) arrive(memory.mixture_full + stage);

#pragma unroll
    for (float& x : S) x *= summary_factor;
    Packed packed;
#pragma unroll
    for (int m = 0; m < 8; ++m) packed.pairs[m] = pack<E>(S[m * 2], S[m * 2 + 1]);
#pragma unroll
    for (int e = 0; e < kGroup - 1; ++e)
      if (t % kGroup == e) recent[e] = packed;
    if (t < kMostBlocks - kGroup) slots.put(t % kSlots, packed);
    if (keeping) {
      wait(&memory.summary_empty, static_cast<int>(step.n & 1) ^ 1);
      put_narrow<E>(shared_address(memory.summary), warp * 16, S);
      fence_shared_writes();
      __syncwarp();
      if (lane == 0) arrive(&memory.summary_full);
    }
  }
}

// ---- readout

template <typename E>
__device__ void read_out(Memory<E>& memory, const Params<E>& p) {
  const int group = warpgroup_id(), stage = group - 2;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = lane_id();
  const auto factor = static_cast<float>(p.args.factor);
  const auto pair_factor = static_cast<float>(p.args.inner_factor / p.args.factor);  // what `factor` does not make up for
  const std::uint32_t x = shared_address(memory.tokens[stage][0]), y = shared_address(memory.tokens[stage][2]);
  const std::uint32_t rest = shared_address(memory.rest[stage]), mixture = shared_address(memory.mixture[stage]);
  for (Step<E> step(p); step; step.next()) {
    if (step.stage() != stage) continue;
    const int parity = step.parity(), block = step.block();
    const float own_weight = p.args.shape.template weight<float>(step.head(), block, block) * pair_factor;

    wait(memory.tokens_full + stage, parity);
    std::uint32_t rows[kDepth / 16][4];
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      load_rows(rows[k], x + static_cast<std::uint32_t>(k / 4 * kTileBytes), warp, k % 4);
    float products[32];
    product_fence();
    pin(products);
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      warpgroup_product<E, false>(
          products, rows[k], product_operand(y + static_cast<std::uint32_t>(k / 4 * kTileBytes + k % 4 * 32), 16), k > 0);
    product_commit();
    product_wait<0>();
    pin(products);
    __syncwarp();
    if (lane < kCluster) arrive_at(memory.tokens_empty + stage, lane);

    // A query sees keys up to its own; seen from a key, queries from its own on.
    std::uint32_t pairs[4][4];
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int row = warp * 16 + (lane >> 2) + e / 2 * 8, column = j * 8 + (lane & 3) * 2;
        const bool low = p.args.reversed ? column >= row : column <= row;
        const bool high = p.args.reversed ? column + 1 >= row : column + 1 <= row;
        pairs[j / 2][j % 2 * 2 + e / 2] = pack<E>(low ? products[j * 4 + e] * own_weight : 0.0F,
                                                  high ? products[j * 4 + e + 1] * own_weight : 0.0F);
      }

    float out[16];
    wait(memory.rest_full + stage, parity);
    product_fence();
    pin(out);
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k)
      narrow_product<E>(out, pairs[k], narrow_operand(rest + static_cast<std::uint32_t>(k * 16 * kNarrowRowBytes)),
                        k > 0);
    product_commit();
    wait(memory.mixture_full + stage, parity);
    product_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      narrow_product<E>(out, rows[k], narrow_operand(mixture + static_cast<std::uint32_t>(k * 16 * kNarrowRowBytes)),
                        true);
    product_commit();
    product_wait<0>();
    pin(out);
    __syncwarp();
    if (lane == 0) arrive(memory.mixture_empty + stage);
#pragma unroll
    for (float& value : out) value *= factor;
    // The mixture was full: summaries have been made of `rest`. And all of this warpgroup have read it.
    sync_warpgroup(group);
    put_narrow<E>(rest, warp * 16, out);
    fence_shared_writes();
    __syncwarp();
    if (lane == 0) arrive(memory.out_full + stage);
  }
}

// ---- copies, by one thread of a warp each

template <typename E>
__device__ void fetch(Memory<E>& memory, const Params<E>& p) {
  constexpr int kOwn = kTiles / kCluster;
  const int rank = cluster_rank();
  const auto token_place = [&](const Step<E>& step, int tile) {
    return step.place(step.head() * kDepth + tile % 2 * kBoxColumns);
  };
  const auto ask = [&](const Step<E>& step) {
    if (!step) return;
    for (int tile = rank * kOwn; tile < (rank + 1) * kOwn; ++tile)
      prefetch_box(tile < 2 ? p.x : p.y, token_place(step, tile));
    prefetch_box(p.rest, step.narrow_place(rank));
  };
  Step<E> ahead(p);
  for (int n = 0; n < kAhead; ++n, ahead.next()) ask(ahead);
  for (Step<E> step(p); step; step.next(), ahead.next()) {
    ask(ahead);
    const int stage = step.stage(), empty = step.parity() ^ 1;
    wait(memory.tokens_empty + stage, empty);
    arrive_expecting(memory.tokens_full + stage, kTiles * kTileBytes);
    for (int tile = rank * kOwn; tile < (rank + 1) * kOwn; ++tile)
      load_box_for(kEveryone, memory.tokens[stage][tile], tile < 2 ? p.x : p.y, token_place(step, tile),
                   memory.tokens_full + stage);
    wait(memory.rest_empty + stage, empty);
    arrive_expecting(memory.rest_full + stage, kRestBytes);
    load_box(memory.rest[stage], p.rest, step.narrow_place(rank), memory.rest_full + stage);
  }
}

template <typename E>
__device__ void store_out(Memory<E>& memory, const Params<E>& p) {
  const int rank = cluster_rank();
  for (Step<E> step(p); step; step.next()) {
    const int stage = step.stage();
    wait(memory.out_full + stage, step.parity());
    store_box(p.out, step.narrow_place(rank), memory.rest[stage]);
    commit_stores();
    wait_stores_read();
    arrive(memory.rest_empty + stage);
  }
}

// Matrices to device memory, from `stages` places in turn.
template <typename E>
__device__ void store_matrices_of(const Params<E>& p, const CUtensorMap& map, const unsigned char* places, int stages,
                                  Barrier* full, Barrier* empty) {
  const int rank = cluster_rank();
  for (Step<E> step(p); step; step.next()) {
    const auto at = static_cast<int>(step.n) % stages, round = static_cast<int>(step.n) / stages;
    wait(full + at, round & 1);
    store_matrix_box(map, step.slice(rank) * kNarrowColumns, step.matrix_row(), places + at * kMatrixBytes);
    commit_stores();
    wait_stores_read();
    arrive(empty + at);
  }
}

template <typename E>
__device__ void prepare(Memory<E>& memory, bool keeping) {
  for (int stage = 0; stage < kStages; ++stage) {
    init_barrier(memory.tokens_full + stage, 1);
    init_barrier(memory.tokens_empty + stage, (kSummaryWarps + kReadoutWarps) * kCluster);
    init_barrier(memory.rest_full + stage, 1);
    init_barrier(memory.rest_empty + stage, 1);
    init_barrier(memory.mixture_full + stage, kSummaryWarps);
    init_barrier(memory.mixture_empty + stage, kReadoutWarps + (keeping ? 1 : 0));
    init_barrier(memory.out_full + stage, kReadoutWarps);
  }
  init_barrier(&memory.summary_full, kSummaryWarps);
  init_barrier(&memory.summary_empty, 1);
  fence_barrier_init();
}

template <typename E>
__global__ __cluster_dims__(kCluster, 1, 1)
    __launch_bounds__(kThreads, 1) void causal_heads_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<Memory<E>*>(bytes);
  const bool keeping = p.args.summaries != nullptr;
  if (threadIdx.x == 0) prepare(memory, keeping);
  sync_cluster();

  if (threadIdx.x >= kConsumers) {
    give_registers<32>();
    if (lane_id() == 0) {
      switch (static_cast<int>(threadIdx.x - kConsumers) / 32) {
        case 0:
          fetch(memory, p);
          break;
        case 1:
          store_out(memory, p);
          break;
        case 2:
          if (keeping) store_matrices_of(p, p.summaries, memory.summary, 1, &memory.summary_full, &memory.summary_empty);
          break;
        case 3:
          if (keeping)
            store_matrices_of(p, p.mixtures, memory.mixture[0], kStages, memory.mixture_full, memory.mixture_empty);
          break;
      }
    }
    __syncwarp();
  } else {
    take_registers<120>();
    threadIdx.x < kSummaryThreads ? summarize(memory, p, keeping) : read_out(memory, p);
  }
  sync_cluster();  // others may still fetch for this thread block, or arrive at its barriers
#endif
}

bool is_plain(const Feature& feature) { return feature.map == FeatureMap::identity && feature.eps == 0; }

}  // namespace

template <typename E>
bool causal_heads_stay_on_chip(const Shape& shape) {
  Boxes boxes;
  constexpr int kColumns = kCluster * kNarrowColumns;
  return shape.masking == Masking::token_causal && is_plain(shape.feature) && shape.heads == shape.kv_heads &&
         shape.initial == 0 && shape.capacity == kBlock &&
         shape.uniform.blocks <= kMostBlocks && shape.uniform.tokens == std::int64_t{kBlock} * shape.uniform.blocks &&
         shape.key_dim == kDepth && shape.value_dim % kColumns == 0 && available() && find_boxes(shape, boxes) &&
         boxes.rows == kBlock &&
         // Fewer leave too many multiprocessors without work.
         shape.sequences * shape.heads * (shape.value_dim / kNarrowColumns) >= multiprocessors() / 2 &&
         static_cast<std::int64_t>(shape.total_blocks) * shape.heads * kDepth < (std::int64_t{1} << 31);
}

template <typename E>
bool causal_heads(const CausalHeadArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int heads = shape.heads;
  if (!causal_heads_stay_on_chip<E>(shape) || !fits(args.x, heads) || !fits(args.y, heads) || !fits(args.rest, heads) ||
      !fits(args.out, heads))
    return false;
  Params<E> p{};
  p.args = args;
  find_boxes(shape, p.boxes);
  p.blocks = shape.uniform.blocks;
  p.parts = shape.value_dim / kNarrowColumns / kCluster;
  p.units = shape.sequences * heads * p.parts;
  p.x = token_map(args.x, heads, shape.sequences, p.boxes);
  p.y = token_map(args.y, heads, shape.sequences, p.boxes);
  p.rest = token_map(args.rest, heads, shape.sequences, p.boxes, kNarrowColumns);
  p.out = token_map(args.out, heads, shape.sequences, p.boxes, kNarrowColumns);
  if (args.summaries != nullptr) {
    const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads * kDepth;
    p.summaries = matrix_map(args.summaries, rows, shape.value_dim, kDepth, kNarrowColumns);
    p.mixtures = matrix_map(args.mixtures, rows, shape.value_dim, kDepth, kNarrowColumns);
  }
  const int at_once = clusters_at_once(reinterpret_cast<const void*>(causal_heads_kernel<E>), kCluster, kThreads,
                                       static_cast<int>(sizeof(Memory<E>)));
  launch("causal heads", causal_heads_kernel<E>, dim3(static_cast<unsigned>(std::min(p.units, at_once) * kCluster)),
         kThreads, sizeof(Memory<E>), stream, p);
  return true;
}

#define MHLA_INSTANTIATE(E)                                 \
  template bool causal_heads_stay_on_chip<E>(const Shape&); \
  template bool causal_heads<E>(const CausalHeadArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda::hopper
