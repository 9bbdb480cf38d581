// The mixtures T_i of a head as heads_sm90.cu takes it, block by block. S_i comes through shared memory; T_i goes
// the same way to the readout, and to device memory where it is wanted there.
//
// Blocks are taken in groups of eight. Within a group, T_i adds what precedes it in the group, out of registers: a
// thread always has the same elements of a matrix. Between groups, matrices lie in 16 slots and are mixed by whole
// groups as products over slots: after blocks 0 to 7 their share of T_8 .. T_15 goes to slots 8 to 15, where S_8 ..
// S_15 replace them one by one; after block 15 the slots, mixed in place, become the shares of T_16 .. T_31; after
// block 23 T_24 .. T_31 gain what blocks 16 to 23 add. A warp only ever touches its own part of the slots.
#pragma once

#include <utility>

#include "cuda/causal/heads_sm90.cuh"

namespace mhla::cuda::hopper::causal {

template <typename E>
__device__ void add_weighted(float (&T)[16], float weight, const Packed& S) {
#pragma unroll
  for (int m = 0; m < 8; ++m) {
    const float2 x = unpack<E>(S.pairs[m]);
    T[m * 2] += weight * x.x;
    T[m * 2 + 1] += weight * x.y;
  }
}

template <typename E, bool kReadsOut>
class Slots {
 public:
  __device__ explicit Slots(Memory<E, kReadsOut>& memory)
      : memory_(memory), own_(memory.slots[0] + thread_number() * 16) {}

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

  Memory<E, kReadsOut>& memory_;
  unsigned char* own_;
};

// The weights of a matrix, by all threads that mix.
template <typename E, bool kReadsOut>
__device__ void load_weights(Memory<E, kReadsOut>& memory, const Params<E>& p, int matrix) {
  sync_threads(kMixingThreads);
#pragma unroll 1
  for (int n = static_cast<int>(threadIdx.x); n < kMostBlocks * kMostBlocks; n += kMixingThreads) {
    const int to = n / kMostBlocks, from = n % kMostBlocks, last = p.blocks - 1;
    float weight = 0;
    if (from < to && to <= last)
      weight = !kReadsOut && p.args.reversed ? p.args.shape.template weight<float>(matrix, last - from, last - to)
                                             : p.args.shape.template weight<float>(matrix, to, from);
    memory.weights[to][from] = to_element<E>(weight);
  }
  sync_threads(kMixingThreads);
}

// kKeeps: T goes to device memory as well.
template <bool kKeeps, typename E, bool kReadsOut>
__device__ void mix(Memory<E, kReadsOut>& memory, const Params<E>& p) {
  const int lane = thread_number() % 32;
  const std::uint32_t rows = narrow_rows(static_cast<int>(threadIdx.x) / 32 * 16);
  const Slots<E, kReadsOut> slots(memory);
  Packed recent[kGroup - 1];  // the blocks of this group so far
  int loaded = -1;            // the matrix whose weights are there
  unsigned n = 0;

  // Block kPlace of the group that begins with block t0; the summary of the block before it comes first.
  const auto take_block = [&]<int kPlace>(int t0, const Step<E, kReadsOut>& unit) {
    const int t = t0 + kPlace, stage = static_cast<int>(n % kStages);
    static_assert(kStages == 2);
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
      add_weighted<E>(T, e % 2 == 0 ? pair.x : pair.y, recent[e]);
    }
    const Packed mixture = rounded<E>(T);
    if constexpr (kReadsOut) {
      if (kPlace > 0 || n > 0) wait(memory.mixture_empty + before_stage, before_parity);
      put_narrow(shared_address(memory.mixture) + rows, mixture.pairs);
      fence_shared_writes();
      __syncwarp();
      if (lane == 0) arrive(memory.mixture_full + stage);
    }
    if constexpr (kKeeps) unit.keep(p.args.mixtures, t, static_cast<int>(threadIdx.x) / 32 * 16, mixture);
    ++n;
  };

  for (Step<E, kReadsOut> step(p); step; step.next_unit()) {
    const int matrix = step.matrix();
    if (matrix != loaded) load_weights(memory, p, matrix);
    loaded = matrix;
    for (int t0 = 0; t0 < p.blocks; t0 += kGroup)
      [&]<int... kPlace>(std::integer_sequence<int, kPlace...>) {
        (void)((t0 + kPlace < p.blocks && (take_block.template operator()<kPlace>(t0, step), true)) && ...);
      }(std::make_integer_sequence<int, kGroup>{});
  }
}

}  // namespace mhla::cuda::hopper::causal
