// A thread block takes 32 columns of the summaries of a head through all blocks in order. The thread blocks of a
// cluster have neighbouring columns and fetch x and y for one another. Roles, by warpgroup:
//
//   0, 1  64 rows of the mixtures T_i each
//   2, 3  S_i and the readout of every second block
//   4     a warp each for fetching tokens and `rest`, and for S and T where they are wanted in device memory
//
// Mixing. S_i and T_i pass between the two through shared memory. Blocks are taken in groups of eight. Within a group,
// T_i adds what precedes it in the group, out of registers: a thread always has the same elements of a matrix. Between
// groups, matrices lie in 16 slots and are mixed by whole groups as products over slots: after blocks 0 to 7 their
// share of T_8 .. T_15 goes to slots 8 to 15, where S_8 .. S_15 replace them one by one; after block 15 the slots,
// mixed in place, become the shares of T_16 .. T_31; after block 23 T_24 .. T_31 gain what blocks 16 to 23 add. A warp
// only ever touches its own part of the slots.
#include <algorithm>

#include "cuda/hopper/causal_heads.hpp"
#include "cuda/hopper/cluster.cuh"
#include "cuda/hopper/narrow.cuh"
#include "cuda/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kCluster = 2;
constexpr int kBlock = 64, kDepth = 128, kMostBlocks = 32, kSlots = 16;
[[maybe_unused]] constexpr int kGroup = 8;  // blocks whose mixtures are made out of registers
constexpr int kMixingThreads = 2 * kWarpgroup, kConsumers = 4 * kWarpgroup, kThreads = kConsumers + kWarpgroup;
[[maybe_unused]] constexpr int kMixingWarps = kMixingThreads / 32, kReadoutWarps = kWarpgroup / 32;
constexpr int kStages = 2;
constexpr int kTileBytes = kBlock * kBoxRowBytes, kTiles = 4;  // x, x, y, y
constexpr int kRestBytes = kBlock * kNarrowRowBytes, kMatrixBytes = kDepth * kNarrowRowBytes;
constexpr int kSlotBytes = kMatrixBytes + 16;  // the same piece of different slots lies in different banks
[[maybe_unused]] constexpr int kAhead = 4;     // blocks, from asking the L2 cache for tokens to fetching them

template <typename E>
struct Params {
  CUtensorMap x, y, rest, summaries, mixtures;
  CausalHeadArgs<E> args;
  float summary_factor, factor;
  float pair_factor;  // what `factor` does not make up for
  int units;          // each a head and the columns of a cluster
  int parts;          // units of a head
  int blocks;
};

template <typename E>
struct Memory {
  unsigned char tokens[kStages][kTiles][kTileBytes];
  unsigned char rest[kStages][kRestBytes];
  unsigned char summary[kStages][kMatrixBytes];  // from the readout to the mixing, and to device memory
  unsigned char mixture[kMatrixBytes];           // the other way, and to device memory
  unsigned char slots[kSlots][kSlotBytes];
  E weights[kMostBlocks][kMostBlocks];  // by place in the order of blocks: of S (column) in T (row)
  Barrier tokens_full[kStages], tokens_empty[kStages], rest_full[kStages], rest_empty[kStages];
  Barrier summary_full[kStages], summary_empty[kStages];
  Barrier mixture_full[kStages], mixture_empty[kStages];  // of one place, by turns
};
constexpr int kSharedLimit = 227 * 1024;
static_assert(sizeof(Memory<__half>) <= kSharedLimit);

// Where a warp stands: step n is block t of a unit.
template <typename E, bool kReversed>
struct Step {
  const Params<E>& p;
  unsigned n = 0;
  int unit, t = 0, stride;
  int head, sequence, column;  // the first of this thread block's columns of `rest`

  __device__ explicit Step(const Params<E>& params)
      : p(params), unit(static_cast<int>(blockIdx.x) / kCluster), stride(static_cast<int>(gridDim.x) / kCluster) {
    locate();
  }
  __device__ explicit operator bool() const { return unit < p.units; }
  __device__ void next(int steps = 1) {
    n += static_cast<unsigned>(steps);
    for (t += steps; t >= p.blocks; t -= p.blocks) next_unit();
  }
  __device__ void next_unit() {
    unit += stride;
    locate();
  }
  __device__ int stage() const { return static_cast<int>(n % kStages); }
  __device__ int parity() const { return static_cast<int>(n / kStages & 1); }
  __device__ int block() const { return kReversed ? p.blocks - 1 - t : t; }
  __device__ BoxPlace token_place() const { return {head * kDepth, block() * kBlock, 0, 0, sequence}; }
  __device__ BoxPlace rest_place() const {
    return {head * p.args.shape.value_dim + column, block() * kBlock, 0, 0, sequence};
  }
  __device__ int matrix_row() const {
    return static_cast<int>(p.args.shape.mixed_row(p.args.shape.sequence(sequence), head, block())) * kDepth;
  }

 private:
  __device__ void locate() {
    const int flat = unit / p.parts;
    sequence = flat / p.args.shape.heads;
    head = flat - sequence * p.args.shape.heads;
    column = ((unit - flat * p.parts) * kCluster + cluster_rank()) * kNarrowColumns;
  }
};

template <typename E>
__device__ float2 unpack(std::uint32_t pair) {
  if constexpr (std::is_same_v<E, __half>)
    return __half22float2(reinterpret_cast<const __half2&>(pair));
  else
    return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000U)};
}

// threadIdx.x, kept in a register instead of asked for again and again.
[[maybe_unused]] __device__ inline int thread_number() {
  return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x), lane_id());
}

// ---- mixing

// 64 rows of a matrix as a thread of a warpgroup has them: accumulators 2 m and 2 m + 1 in number m.
struct Packed {
  std::uint32_t pairs[8];
};
template <typename E>
__device__ Packed round(const float (&x)[16]) {
  Packed packed;
#pragma unroll
  for (int m = 0; m < 8; ++m) packed.pairs[m] = pack<E>(x[m * 2], x[m * 2 + 1]);
  return packed;
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
  __device__ explicit Slots(Memory<E>& memory) : memory_(memory), own_(memory.slots[0] + thread_number() * 16) {}

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
  template <bool kInAddition>
  __device__ void mix_group(int first) const {
    const int lane = lane_id();
    const typename Math::A a{{weights(first + (lane >> 2), first - kGroup + (lane & 3) * 2), 0, 0, 0}};
    const std::uint32_t from_slots = at(lane & 7, lane >> 3), to_slots = at(kGroup + (lane & 7), lane >> 3);
    __syncwarp();
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += 4 * kTogether) {
      std::uint32_t from[kTogether][4], to[kTogether][4];
#pragma unroll
      for (int n = 0; n < kTogether; ++n) {
        load_matrices<true>(from[n], from_slots + offset(piece + n * 4));
        if constexpr (kInAddition) load_matrices<false>(to[n], to_slots + offset(piece + n * 4));
      }
#pragma unroll
      for (int n = 0; n < kTogether; ++n)
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const float2 before = kInAddition ? unpack<E>(to[n][c]) : float2{0, 0};
          float acc[4] = {before.x, before.y, 0, 0};
          Math::mma(acc, a, typename Math::B{{from[n][c], 0}});
          to[n][c] = pack<E>(acc[0], acc[1]);
        }
#pragma unroll
      for (int n = 0; n < kTogether; ++n) store_matrices(to_slots + offset(piece + n * 4), to[n]);
    }
    __syncwarp();
  }

  // All slots become their shares of the mixtures of kSlots and the fifteen that follow.
  __device__ void mix_all() const {
    const int lane = lane_id(), row = kSlots + (lane >> 2), column = (lane & 3) * 2;
    const typename Math::A a{
        {weights(row, column), weights(row + 8, column), weights(row, column + 8), weights(row + 8, column + 8)}};
    const std::uint32_t slots = at(lane & 15, lane >> 4);
    __syncwarp();
#pragma unroll
    for (int piece = 0; piece < kPieces; piece += 2 * kTogether) {
      std::uint32_t from[kTogether][4], to[kTogether][4];
#pragma unroll
      for (int n = 0; n < kTogether; ++n) load_matrices<true>(from[n], slots + offset(piece + n * 2));
#pragma unroll
      for (int n = 0; n < kTogether; ++n)
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          float acc[4] = {0, 0, 0, 0};
          Math::mma(acc, a, typename Math::B{{from[n][c * 2], from[n][c * 2 + 1]}});
          to[n][c * 2] = pack<E>(acc[0], acc[1]);
          to[n][c * 2 + 1] = pack<E>(acc[2], acc[3]);
        }
#pragma unroll
      for (int n = 0; n < kTogether; ++n) store_matrices(slots + offset(piece + n * 2), to[n]);
    }
    __syncwarp();
  }

 private:
  using Math = HalfMath<E>;
  // A slot is two halves of 16 bytes per thread; a warp's part of it 64 pieces of 16 bytes.
  static constexpr int kHalf = kMatrixBytes / 2, kPieces = kMatrixBytes / kMixingWarps / 16;
  static constexpr int kTogether = 4;  // loads in flight

  __device__ unsigned char* own(int slot, int half) const { return own_ + slot * kSlotBytes + half * kHalf; }
  // A piece of the warp's part, one of the first few; and how much further number `piece` after it lies.
  __device__ std::uint32_t at(int slot, int piece) const {
    return shared_address(own_) + static_cast<std::uint32_t>(slot * kSlotBytes + (piece - lane_id()) * 16);
  }
  __device__ static constexpr std::uint32_t offset(int piece) {
    return static_cast<std::uint32_t>(piece / 32 * kHalf + piece % 32 * 16);
  }
  __device__ std::uint32_t weights(int to, int from) const {
    return *reinterpret_cast<const std::uint32_t*>(&memory_.weights[to][from]);
  }

  Memory<E>& memory_;
  unsigned char* own_;
};

// The weights of a head, by all threads that mix.
template <bool kReversed, typename E>
__device__ void load_weights(Memory<E>& memory, const Params<E>& p, int head) {
  sync_threads(kMixingThreads);
#pragma unroll 1
  for (int n = static_cast<int>(threadIdx.x); n < kMostBlocks * kMostBlocks; n += kMixingThreads) {
    const int to = n / kMostBlocks, from = n % kMostBlocks, last = p.blocks - 1;
    float weight = 0;
    if (from < to && to <= last)
      weight = kReversed ? p.args.shape.template weight<float>(head, last - from, last - to)
                         : p.args.shape.template weight<float>(head, to, from);
    memory.weights[to][from] = to_element<E>(weight);
  }
  sync_threads(kMixingThreads);
}

template <bool kReversed, typename E>
__device__ void mix(Memory<E>& memory, const Params<E>& p) {
  const int lane = thread_number() % 32;
  const std::uint32_t rows = narrow_rows(static_cast<int>(threadIdx.x) / 32 * 16);
  const Slots<E> slots(memory);
  Packed recent[kGroup - 1];  // the blocks of this group so far
  int loaded = -1;            // the head whose weights are there
  unsigned n = 0;

  // Block kPlace of the group that begins with block t0; the summary of the block before it comes first.
  const auto take_block = [&]<int kPlace>(int t0) {
    const int t = t0 + kPlace, stage = static_cast<int>(n % kStages);
    const int before_stage = 1 - stage, before_parity = static_cast<int>((n - 1) / kStages & 1);
    if (kPlace > 0 || n > 0) {
      Packed last;
      wait(memory.summary_full + before_stage, before_parity);
      get_narrow(last.pairs, shared_address(memory.summary[before_stage]) + rows);
      __syncwarp();
      if (lane == 0) arrive(memory.summary_empty + before_stage);
      if constexpr (kPlace > 0) recent[kPlace - 1] = last;
      if (t > 0 && t <= kMostBlocks - kGroup) slots.put((t - 1) % kSlots, last);
    }
    if constexpr (kPlace == 0) {
      if (t0 == kGroup) slots.template mix_group<false>(t0);
      if (t0 == kSlots) slots.mix_all();
      if (t0 == kSlots + kGroup) slots.template mix_group<true>(t0);
    }
    Packed before{};
    if (t0 > 0) before = slots.get(t % kSlots);
    float T[16];
#pragma unroll
    for (int m = 0; m < 8; ++m) {
      const float2 x = unpack<E>(before.pairs[m]);
      T[m * 2] = x.x;
      T[m * 2 + 1] = x.y;
    }
    const uint4 weights = *reinterpret_cast<const uint4*>(memory.weights[t] + t0);
#pragma unroll
    for (int e = 0; e < kPlace; ++e) {
      const float2 pair = unpack<E>(reinterpret_cast<const std::uint32_t(&)[4]>(weights)[e / 2]);
      add<E>(T, e % 2 == 0 ? pair.x : pair.y, recent[e]);
    }
    if (kPlace > 0 || n > 0) wait(memory.mixture_empty + before_stage, before_parity);
    put_narrow(shared_address(memory.mixture) + rows, round<E>(T).pairs);
    fence_shared_writes();
    __syncwarp();
    if (lane == 0) arrive(memory.mixture_full + stage);
    ++n;
  };

  for (Step<E, kReversed> step(p); step; step.next_unit()) {
    const int head = p.args.shape.mixing_per_head ? step.head : 0;
    if (head != loaded) load_weights<kReversed>(memory, p, head);
    loaded = head;
    for (int t0 = 0; t0 < p.blocks; t0 += kGroup)
      [&]<int... kPlace>(std::integer_sequence<int, kPlace...>) {
        (void)((t0 + kPlace < p.blocks && (take_block.template operator()<kPlace>(t0), true)) && ...);
      }(std::make_integer_sequence<int, kGroup>{});
  }
}

// ---- readout

// Lane l of four has piece l of each of them afterwards, so that a lane has 16 adjacent bytes of a row.
[[maybe_unused]] __device__ void exchange_in_quad(std::uint32_t (&pieces)[4]) {
  const int lane = lane_id();
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if ((i & bit) == 0) {
        const bool upper = (lane & bit) != 0;
        const std::uint32_t other = __shfl_xor_sync(0xffffffffu, upper ? pieces[i] : pieces[i | bit], bit);
        (upper ? pieces[i] : pieces[i | bit]) = other;
      }
}

template <bool kReversed, typename E>
__device__ void read_out(Memory<E>& memory, const Params<E>& p, bool keeping) {
  int stage = warpgroup_id() - 2;
  int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = thread_number() % 32;
  // This lane's piece of 16 rows of a tile and of a narrow matrix, relative to where these begin.
  const std::uint32_t own = box_piece(0, warp * 16 + (lane & 15), lane >> 4), narrow_own = narrow_rows(warp * 16);
  // A query sees keys up to its own; seen from a key, queries from its own on. Masks of pairs of elements, for the 16
  // columns that are this warp's rows; others are seen as a whole or not at all.
  std::uint32_t diagonal[2][2];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int row = (lane >> 2) + n % 2 * 8, column = n / 2 * 8 + (lane & 3) * 2;
    const auto sees = [&](int c) { return kReversed ? c >= row : c <= row; };
    diagonal[n / 2][n % 2] = (sees(column) ? 0xffffU : 0) | (sees(column + 1) ? 0xffff0000U : 0);
  }
  const auto mask = [&](int columns_after, int piece, int half) {
    if (columns_after == 0) return diagonal[piece][half];
    return (columns_after > 0) == kReversed ? ~0U : 0U;
  };
  Step<E, kReversed> step(p);
  step.next(stage);
  const auto own_weight = [&] {
    return step ? p.args.shape.template weight<float>(step.head, step.block(), step.block()) : 0.0F;
  };
  for (float weight = own_weight(); step; weight = own_weight()) {
    // What follows from these is cheaper to find again than to keep, for which there are no registers.
    asm volatile("" : "+r"(stage), "+r"(warp));
    const int parity = step.parity(), block = step.block();
    const std::uint64_t x = product_operand(shared_address(memory.tokens[stage][0]), 16);
    const std::uint64_t y = product_operand(shared_address(memory.tokens[stage][2]), 16);
    const std::uint64_t rest = narrow_operand(shared_address(memory.rest[stage]));
    const std::uint64_t mixture = narrow_operand(shared_address(memory.mixture));

    wait(memory.tokens_full + stage, parity);
    wait(memory.rest_full + stage, parity);
    float S[2][16], products[32];
    product_fence();
    pin(S[0]);
    pin(S[1]);
    pin(products);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int k = 0; k < kBlock / 16; ++k)
        narrow_product<E>(S[half], advance(y, half * kTileBytes + k * 16 * kBoxRowBytes),
                          advance(rest, k * 16 * kNarrowRowBytes), k > 0);
    product_commit();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      const int column = k / 4 * kTileBytes + k % 4 * 32;
      warpgroup_product<E, false, false>(products, advance(x, column), advance(y, column), k > 0);
    }
    product_commit();

    product_wait<1>();
    pin(S[0]);
    pin(S[1]);
    wait(memory.summary_empty + stage, parity ^ 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (p.summary_factor != 1) {
#pragma unroll
        for (int m = 0; m < 16; ++m) S[half][m] *= p.summary_factor;
      }
      put_narrow(shared_address(memory.summary[stage]) + narrow_own + half * (kMatrixBytes / 2),
                 round<E>(S[half]).pairs);
    }
    if (keeping) fence_shared_writes();
    __syncwarp();
    if (lane == 0) arrive(memory.summary_full + stage);

    std::uint32_t rows[kDepth / 16][4];
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      load_matrices<false>(rows[k], shared_address(memory.tokens[stage][k / 4]) + (own ^ (k % 4 * 32U)));
    product_wait<0>();
    pin(products);
    __syncwarp();
    if (lane < kCluster) arrive_at(memory.tokens_empty + stage, lane);

    weight *= p.pair_factor;
    std::uint32_t pairs[4][4];
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int first = j * 4 + half * 2;
        pairs[j / 2][j % 2 * 2 + half] =
            pack<E>(products[first] * weight, products[first + 1] * weight) & mask(j / 2 - warp, j % 2, half);
      }

    float out[16];
    product_fence();
    pin(out);
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k)
      narrow_product<E>(out, pairs[k], advance(rest, k * 16 * kNarrowRowBytes), k > 0);
    product_commit();
    wait(memory.mixture_full + stage, parity);
    product_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      narrow_product<E>(out, rows[k], advance(mixture, k * 16 * kNarrowRowBytes), true);
    product_commit();
    product_wait<0>();
    pin(out);
    __syncwarp();
    if (lane == 0) {
      arrive(memory.rest_empty + stage);
      arrive(memory.mixture_empty + stage);
    }
    const HeadView<E> head = p.args.out.head(step.sequence, step.head);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t pieces[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        pieces[j] = pack<E>(out[j * 4 + half * 2] * p.factor, out[j * 4 + half * 2 + 1] * p.factor);
      exchange_in_quad(pieces);
      E* const row = head.row(block * kBlock + warp * 16 + half * 8 + (lane >> 2));
      *reinterpret_cast<uint4*>(row + step.column + (lane & 3) * 8) =
          make_uint4(pieces[0], pieces[1], pieces[2], pieces[3]);
    }
    step.next(kStages);
  }
}

// ---- copies, by one thread of a warp each

template <bool kReversed, typename E>
__device__ void fetch_tokens(Memory<E>& memory, const Params<E>& p) {
  constexpr int kOwn = kTiles / kCluster;
  const int first = cluster_rank() * kOwn;
  // f(tile, map, place) for those that this thread block fetches.
  const auto for_own = [&](BoxPlace at, auto&& f) {
    const int column = at.column;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      at.column = column + (first + n) % 2 * kBoxColumns;
      f(first + n, first + n < 2 ? p.x : p.y, at);
    }
  };
  const auto ask = [&](const Step<E, kReversed>& step) {
    if (step)
      for_own(step.token_place(), [&](int, const CUtensorMap& map, const BoxPlace& at) { prefetch_box(map, at); });
  };
  Step<E, kReversed> ahead(p);
  for (int n = 0; n < kAhead; ++n, ahead.next()) ask(ahead);
  for (Step<E, kReversed> step(p); step; step.next(), ahead.next()) {
    ask(ahead);
    Barrier* const full = memory.tokens_full + step.stage();
    wait(memory.tokens_empty + step.stage(), step.parity() ^ 1);
    arrive_expecting(full, kTiles * kTileBytes);
    for_own(step.token_place(), [&](int tile, const CUtensorMap& map, const BoxPlace& at) {
      load_box_for((1 << kCluster) - 1, memory.tokens[step.stage()][tile], map, at, full);
    });
  }
}

template <bool kReversed, typename E>
__device__ void fetch_rest(Memory<E>& memory, const Params<E>& p) {
  Step<E, kReversed> ahead(p);
  for (int n = 0; n < kAhead; ++n, ahead.next())
    if (ahead) prefetch_box(p.rest, ahead.rest_place());
  for (Step<E, kReversed> step(p); step; step.next(), ahead.next()) {
    if (ahead) prefetch_box(p.rest, ahead.rest_place());
    Barrier* const full = memory.rest_full + step.stage();
    wait(memory.rest_empty + step.stage(), step.parity() ^ 1);
    arrive_expecting(full, kRestBytes);
    load_box(memory.rest[step.stage()], p.rest, step.rest_place(), full);
  }
}

// Matrices to device memory, from places `pitch` bytes apart.
template <bool kReversed, typename E>
__device__ void store_matrices_of(const Params<E>& p, const CUtensorMap& map, const unsigned char* places, int pitch,
                                  Barrier* full, Barrier* empty) {
  for (Step<E, kReversed> step(p); step; step.next()) {
    const int stage = step.stage();
    wait(full + stage, step.parity());
    store_matrix_box(map, step.column, step.matrix_row(), places + stage * pitch);
    commit_stores();
    wait_stores_read();
    arrive(empty + stage);
  }
}

template <typename E>
__device__ void prepare(Memory<E>& memory, bool keeping) {
  for (int stage = 0; stage < kStages; ++stage) {
    init_barrier(memory.tokens_full + stage, 1);
    init_barrier(memory.tokens_empty + stage, kReadoutWarps * kCluster);
    init_barrier(memory.rest_full + stage, 1);
    init_barrier(memory.rest_empty + stage, kReadoutWarps);
    init_barrier(memory.mixture_full + stage, kMixingWarps);
    init_barrier(memory.mixture_empty + stage, kReadoutWarps + (keeping ? 1 : 0));
    init_barrier(memory.summary_full + stage, kReadoutWarps);
    init_barrier(memory.summary_empty + stage, kMixingWarps + (keeping ? 1 : 0));
  }
  fence_barrier_init();
}

template <typename E, bool kReversed>
__global__ MHLA_CLUSTER(kCluster)
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
          fetch_tokens<kReversed>(memory, p);
          break;
        case 1:
          fetch_rest<kReversed>(memory, p);
          break;
        case 2:
          if (keeping)
            store_matrices_of<kReversed>(p, p.summaries, memory.summary[0], kMatrixBytes, memory.summary_full,
                                         memory.summary_empty);
          break;
        case 3:
          if (keeping)
            store_matrices_of<kReversed>(p, p.mixtures, memory.mixture, 0, memory.mixture_full, memory.mixture_empty);
          break;
      }
    }
    __syncwarp();
  } else if (threadIdx.x < kMixingThreads) {
    take_registers<120>();
    mix<kReversed>(memory, p);
  } else {
    take_registers<104>();
    read_out<kReversed>(memory, p, keeping);
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
         shape.initial == 0 && shape.capacity == kBlock && shape.uniform.blocks <= kMostBlocks &&
         shape.uniform.tokens == std::int64_t{kBlock} * shape.uniform.blocks && shape.key_dim == kDepth &&
         shape.value_dim % kColumns == 0 && available() && find_boxes(shape, boxes) && boxes.rows == kBlock &&
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
  Boxes boxes;
  find_boxes(shape, boxes);
  p.summary_factor = static_cast<float>(args.summary_factor);
  p.factor = static_cast<float>(args.factor);
  p.pair_factor = static_cast<float>(args.inner_factor / args.factor);
  p.blocks = shape.uniform.blocks;
  p.parts = shape.value_dim / kNarrowColumns / kCluster;
  p.units = shape.sequences * heads * p.parts;
  p.x = token_map(args.x, heads, shape.sequences, boxes);
  p.y = token_map(args.y, heads, shape.sequences, boxes);
  p.rest = token_map(args.rest, heads, shape.sequences, boxes, kNarrowColumns);
  if (args.summaries != nullptr) {
    const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads * kDepth;
    p.summaries = matrix_map(args.summaries, rows, shape.value_dim, kDepth, kNarrowColumns);
    p.mixtures = matrix_map(args.mixtures, rows, shape.value_dim, kDepth, kNarrowColumns);
  }
  const auto run = [&](auto* kernel) {
    constexpr auto kBytes = sizeof(Memory<E>);
    const int at_once =
        clusters_at_once(reinterpret_cast<const void*>(kernel), kCluster, kThreads, static_cast<int>(kBytes));
    launch("causal heads", kernel, dim3(static_cast<unsigned>(std::min(p.units, at_once) * kCluster)), kThreads, kBytes,
           stream, p);
  };
  args.reversed ? run(causal_heads_kernel<E, true>) : run(causal_heads_kernel<E, false>);
  return true;
}

#define MHLA_INSTANTIATE(E)                                 \
  template bool causal_heads_stay_on_chip<E>(const Shape&); \
  template bool causal_heads<E>(const CausalHeadArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda::hopper
