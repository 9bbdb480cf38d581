// What the roles of heads_sm90.cu share: sizes, shared memory, and the order of blocks.
#pragma once

#include "cuda/causal/causal_sm90.hpp"
#include "cuda/support/hopper/cluster.cuh"
#include "cuda/support/hopper/narrow.cuh"
#include "cuda/support/hopper/ring.cuh"

namespace mhla::cuda::hopper::causal {

inline constexpr int kCluster = 2;
inline constexpr int kBlock = 64, kDepth = 128, kMostBlocks = 32, kSlots = 16;
inline constexpr int kGroup = 8;  // blocks whose mixtures are made out of registers
inline constexpr int kMixingThreads = 2 * kWarpgroup, kConsumers = 4 * kWarpgroup, kThreads = kConsumers + kWarpgroup;
inline constexpr int kMixingWarps = kMixingThreads / 32, kGroupWarps = kWarpgroup / 32;
inline constexpr int kStages = 2;  // of summaries; and warpgroups that read out, by turns
inline constexpr int kDepthTiles = kDepth / kBoxColumns;
inline constexpr int kRestBytes = kBlock * kNarrowRowBytes, kMatrixBytes = kDepth * kNarrowRowBytes;
inline constexpr int kSlotBytes = kMatrixBytes + 16;  // the same piece of different slots lies in different banks
inline constexpr int kAhead = 4;                      // blocks, from asking the L2 cache for tokens to fetching them

template <typename E>
struct Params {
  CUtensorMap x, y, rest;
  CausalHeadArgs<E> args;
  float summary_factor, factor, pair_factor;
  int units;  // each a head and the columns of a cluster
  int parts;  // units of a head
  int blocks;
};

template <typename E, bool kReadsOut>
struct Memory {
  static constexpr int kTokenStages = kReadsOut ? 2 : 4;
  static constexpr int kTiles = (kReadsOut ? 2 : 1) * kDepthTiles;  // of x where they are read out, then of y
  unsigned char tokens[kTokenStages][kTiles][kTileBytes];
  unsigned char rest[kTokenStages][kRestBytes];
  unsigned char summary[kStages][kMatrixBytes];          // to the warpgroups that mix
  unsigned char mixture[kReadsOut ? kMatrixBytes : 16];  // from them, where it is read out
  alignas(16) unsigned char slots[kSlots][kSlotBytes];
  E weights[kMostBlocks][kMostBlocks];  // by place in the order of blocks: of S (column) in T (row)
  Barrier tokens_full[kTokenStages], tokens_empty[kTokenStages], rest_full[kTokenStages], rest_empty[kTokenStages];
  Barrier summary_full[kStages], summary_empty[kStages];
  // Of one place, in turn: the two warpgroups that read out see every second mixture, and a parity would not tell
  // those apart.
  Barrier mixture_full[kStages], mixture_empty[kStages];
};
inline constexpr int kSharedLimit = 227 * 1024;
static_assert(sizeof(Memory<__half, true>) <= kSharedLimit && sizeof(Memory<__half, false>) <= kSharedLimit);

// 64 rows of a matrix as a thread of a warpgroup has them: accumulators 2 m and 2 m + 1 in number m.
struct Packed {
  std::uint32_t pairs[8];
};
template <typename E>
__device__ Packed rounded(const float (&x)[16]) {
  Packed packed;
#pragma unroll
  for (int m = 0; m < 8; ++m) packed.pairs[m] = pack<E>(x[m * 2], x[m * 2 + 1]);
  return packed;
}

// Where a warp stands: step n is block t of a unit.
template <typename E, bool kReadsOut>
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
  __device__ int block() const { return block(t); }
  __device__ int matrix() const { return p.args.shape.matrix(sequence, head); }  // of weights
  __device__ BoxPlace token_place() const { return {head * kDepth, block() * kBlock, 0, 0, sequence}; }
  __device__ BoxPlace rest_place() const {
    return {head * p.args.shape.value_dim + column, block() * kBlock, 0, 0, sequence};
  }
  // A warp's 16 rows from `row` on of this thread block's part of a matrix, to the store of these.
  __device__ void keep(E* store, int place, int row, const Packed& x) const {
    const Shape& shape = p.args.shape;
    const int pitch = shape.value_dim, lane = lane_id();
    const std::int64_t matrix = shape.mixed_row(shape.sequence(sequence), head, block(place));
    E* const first = store + (matrix * kDepth + row + (lane >> 2)) * pitch + column + (lane & 3) * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      std::uint32_t pieces[4];
#pragma unroll
      for (int n = 0; n < 4; ++n) pieces[n] = x.pairs[n * 2 + half];
      put_in_quad(first + half * 8 * pitch, pieces);
    }
  }

 private:
  __device__ int block(int place) const { return !kReadsOut && p.args.reversed ? p.blocks - 1 - place : place; }
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
__device__ inline int thread_number() { return __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x), lane_id()); }

}  // namespace mhla::cuda::hopper::causal
