// A thread block takes 32 columns of the summaries of a head through all blocks in order. The thread blocks of a
// cluster have neighbouring columns and fetch x and y for one another. Roles, by warpgroup:
//
//   0, 1  64 rows of the mixtures T_i each
//   2, 3  S_i and the readout of every second block; or, where nothing is read out, 64 rows of S_i each
//   4     a thread each for fetching tokens and `rest`
#include <algorithm>

#include "cuda/causal/mixing_sm90.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace causal {
namespace {

// ---- readout

// kKeeps: S goes to device memory as well.
template <bool kKeeps, typename E>
__device__ void read_out(Memory<E, true>& memory, const Params<E>& p) {
  int stage = warpgroup_id() - 2;
  int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int lane = thread_number() % 32;
  // This lane's piece of 16 rows of a tile and of a narrow matrix, relative to where these begin.
  const std::uint32_t own = box_piece(0, warp * 16 + (lane & 15), lane >> 4), narrow_own = narrow_rows(warp * 16);
  // A query sees keys up to its own. Masks of pairs of elements, for the 16 columns that are this warp's rows; others
  // are seen as a whole or not at all.
  std::uint32_t diagonal[2][2];
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const int row = (lane >> 2) + n % 2 * 8, column = n / 2 * 8 + (lane & 3) * 2;
    diagonal[n / 2][n % 2] = (column <= row ? 0xffffU : 0) | (column + 1 <= row ? 0xffff0000U : 0);
  }
  const auto mask = [&](int columns_after, int piece, int half) {
    if (columns_after == 0) return diagonal[piece][half];
    return columns_after < 0 ? ~0U : 0U;
  };
  Step<E, true> step(p);
  step.next(stage);
  const auto own_weight = [&] {
    return step ? p.args.shape.template weight<float>(step.matrix(), step.block(), step.block()) : 0.0F;
  };
  for (float weight = own_weight(); step; weight = own_weight()) {
    // What follows from these is cheaper to find again than to keep, for which there are no registers.
    asm volatile("" : "+r"(stage), "+r"(warp));
    const int parity = step.parity(), block = step.block();
    const std::uint64_t y = product_operand(shared_address(memory.tokens[stage][kDepthTiles]), 16);
    const std::uint64_t rest = narrow_operand(shared_address(memory.rest[stage]));
    const std::uint64_t mixture = narrow_operand(shared_address(memory.mixture));

    wait(memory.tokens_full + stage, parity);
    wait(memory.rest_full + stage, parity);
    float S[2][16];
    product_fence();
    pin(S[0]);
    pin(S[1]);
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int k = 0; k < kBlock / 16; ++k)
        narrow_product<E>(S[half], advance(y, half * kTileBytes + k * 16 * kBoxRowBytes),
                          advance(rest, k * 16 * kNarrowRowBytes), k > 0);
    product_commit();
    std::uint32_t rows[kDepth / 16][4];
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      load_matrices<false>(rows[k], shared_address(memory.tokens[stage][k / 4]) + (own ^ (k % 4 * 32U)));
    product_wait<0>();
    pin(S[0]);
    pin(S[1]);
    wait(memory.summary_empty + stage, parity ^ 1);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (p.summary_factor != 1) {
#pragma unroll
        for (int m = 0; m < 16; ++m) S[half][m] *= p.summary_factor;
      }
      const Packed packed = rounded<E>(S[half]);
      put_narrow(shared_address(memory.summary[stage]) + narrow_own + half * (kMatrixBytes / 2), packed.pairs);
      if constexpr (kKeeps) step.keep(p.args.summaries, step.t, half * 64 + warp * 16, packed);
    }
    // With X out of registers, its loads have come back once the products are done, and its place may be fetched into:
    // an arrival alone does not wait for them.
    float products[32];
    product_fence();
    pin(products);
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k)
      warpgroup_product<E, false>(products, rows[k], advance(y, k / 4 * kTileBytes + k % 4 * 32), k > 0);
    product_commit();
    __syncwarp();
    if (lane == 0) arrive(memory.summary_full + stage);
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
#pragma unroll
    for (float& x : out) x *= p.factor;
    put_rows(p.args.out.head(step.sequence, step.head), block * kBlock + warp * 16, step.column, out);
    step.next(kStages);
  }
}

// ---- summaries alone: 64 rows each of those two warpgroups

template <typename E>
__device__ void summarize(Memory<E, false>& memory, const Params<E>& p) {
  const int half = warpgroup_id() - 2, lane = lane_id(), row = half * 64 + static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  const std::uint32_t own = narrow_rows(row);
  Turn turn;
  for (Step<E, false> step(p); step; step.next(), turn.next(memory.kTokenStages)) {
    const std::uint64_t y = product_operand(shared_address(memory.tokens[turn.at][half]), 16);
    const std::uint64_t rest = narrow_operand(shared_address(memory.rest[turn.at]));
    wait(memory.tokens_full + turn.at, turn.parity);
    wait(memory.rest_full + turn.at, turn.parity);
    float S[16];
    product_fence();
    pin(S);
#pragma unroll
    for (int k = 0; k < kBlock / 16; ++k)
      narrow_product<E>(S, advance(y, k * 16 * kBoxRowBytes), advance(rest, k * 16 * kNarrowRowBytes), k > 0);
    product_commit();
    product_wait<0>();
    pin(S);
    __syncwarp();
    if (lane < kCluster) arrive_at(memory.tokens_empty + turn.at, lane);
    if (lane == 0) arrive(memory.rest_empty + turn.at);
#pragma unroll
    for (float& x : S) x *= p.summary_factor;
    const Packed packed = rounded<E>(S);
    wait(memory.summary_empty + step.stage(), step.parity() ^ 1);
    put_narrow(shared_address(memory.summary[step.stage()]) + own, packed.pairs);
    __syncwarp();
    if (lane == 0) arrive(memory.summary_full + step.stage());
    step.keep(p.args.summaries, step.t, row, packed);
  }
}

// ---- copies, by one thread of a warp each

template <typename E, bool kReadsOut>
__device__ void fetch_tokens(Memory<E, kReadsOut>& memory, const Params<E>& p) {
  constexpr int kTiles = Memory<E, kReadsOut>::kTiles, kOwn = kTiles / kCluster;
  const int first = cluster_rank() * kOwn;
  // f(tile, map, place) for those that this thread block fetches.
  const auto for_own = [&](BoxPlace at, auto&& f) {
    const int column = at.column;
#pragma unroll
    for (int n = 0; n < kOwn; ++n) {
      at.column = column + (first + n) % kDepthTiles * kBoxColumns;
      f(first + n, first + n < kTiles - kDepthTiles ? p.x : p.y, at);
    }
  };
  const auto ask = [&](const Step<E, kReadsOut>& step) {
    if (step)
      for_own(step.token_place(), [&](int, const CUtensorMap& map, const BoxPlace& at) { prefetch_box(map, at); });
  };
  Step<E, kReadsOut> ahead(p);
  for (int n = 0; n < kAhead; ++n, ahead.next()) ask(ahead);
  Turn turn;
  for (Step<E, kReadsOut> step(p); step; step.next(), ahead.next(), turn.next(memory.kTokenStages)) {
    ask(ahead);
    Barrier* const full = memory.tokens_full + turn.at;
    wait(memory.tokens_empty + turn.at, turn.parity ^ 1);
    arrive_expecting(full, kTiles * kTileBytes);
    for_own(step.token_place(), [&](int tile, const CUtensorMap& map, const BoxPlace& at) {
      load_box_for((1 << kCluster) - 1, memory.tokens[turn.at][tile], map, at, full);
    });
  }
}

template <typename E, bool kReadsOut>
__device__ void fetch_rest(Memory<E, kReadsOut>& memory, const Params<E>& p) {
  Step<E, kReadsOut> ahead(p);
  for (int n = 0; n < kAhead; ++n, ahead.next())
    if (ahead) prefetch_box(p.rest, ahead.rest_place());
  Turn turn;
  for (Step<E, kReadsOut> step(p); step; step.next(), ahead.next(), turn.next(memory.kTokenStages)) {
    if (ahead) prefetch_box(p.rest, ahead.rest_place());
    Barrier* const full = memory.rest_full + turn.at;
    wait(memory.rest_empty + turn.at, turn.parity ^ 1);
    arrive_expecting(full, kRestBytes);
    load_box(memory.rest[turn.at], p.rest, step.rest_place(), full);
  }
}

template <typename E, bool kReadsOut>
__device__ void prepare(Memory<E, kReadsOut>& memory) {
  constexpr int kWarps = (kReadsOut ? 1 : 2) * kGroupWarps;  // that a block's tokens are for
  for (int stage = 0; stage < memory.kTokenStages; ++stage) {
    init_barrier(memory.tokens_full + stage, 1);
    init_barrier(memory.tokens_empty + stage, kWarps * kCluster);
    init_barrier(memory.rest_full + stage, 1);
    init_barrier(memory.rest_empty + stage, kWarps);
  }
  for (int stage = 0; stage < kStages; ++stage) {
    init_barrier(memory.mixture_full + stage, kMixingWarps);
    init_barrier(memory.mixture_empty + stage, kGroupWarps);
    init_barrier(memory.summary_full + stage, kWarps);
    init_barrier(memory.summary_empty + stage, kMixingWarps);
  }
  fence_barrier_init();
}

template <typename E, bool kReadsOut, bool kKeeps>
__global__ MHLA_CLUSTER(kCluster)
    __launch_bounds__(kThreads, 1) void causal_heads_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<Memory<E, kReadsOut>*>(bytes);
  if (threadIdx.x == 0) prepare(memory);
  sync_cluster();

  if (threadIdx.x >= kConsumers) {
    give_registers<32>();
    if (threadIdx.x == kConsumers) fetch_tokens(memory, p);
    if (threadIdx.x == kConsumers + 32) fetch_rest(memory, p);
    __syncwarp();
  } else if (threadIdx.x < kMixingThreads) {
    take_registers<kReadsOut ? 120 : 144>();
    mix<kKeeps>(memory, p);
  } else {
    if constexpr (kReadsOut) {
      take_registers<104>();
      read_out<kKeeps>(memory, p);
    } else {
      give_registers<80>();
      summarize(memory, p);
    }
  }
  sync_cluster();  // others may still fetch for this thread block, or arrive at its barriers
#endif
}

}  // namespace
}  // namespace causal

template <typename E>
bool suits_causal_heads(const Shape& shape) {
  using namespace causal;
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
  using namespace causal;
  const Shape& shape = args.shape;
  const int heads = shape.heads;
  const bool reads_out = static_cast<bool>(args.out);
  if (!suits_causal_heads<E>(shape) || !fits(args.y, heads) || !fits(args.rest, heads) ||
      (reads_out && (!fits(args.x, heads) || !fits(args.out, heads))))
    return false;
  Params<E> p{};
  p.args = args;
  Boxes boxes;
  find_boxes(shape, boxes);
  p.summary_factor = static_cast<float>(args.summary_factor);
  p.factor = static_cast<float>(args.factor);
  p.pair_factor = static_cast<float>(args.pair_factor);
  p.blocks = shape.uniform.blocks;
  p.parts = shape.value_dim / kNarrowColumns / kCluster;
  p.units = shape.sequences * heads * p.parts;
  if (reads_out) p.x = token_map(args.x, heads, shape.sequences, boxes);
  p.y = token_map(args.y, heads, shape.sequences, boxes);
  p.rest = token_map(args.rest, heads, shape.sequences, boxes, kNarrowColumns);
  const auto run = [&](auto* kernel, std::size_t bytes) {
    const int at_once =
        clusters_at_once(reinterpret_cast<const void*>(kernel), kCluster, kThreads, static_cast<int>(bytes));
    if (at_once == 0) return false;
    launch("causal heads", kernel, dim3(static_cast<unsigned>(std::min(p.units, at_once) * kCluster)), kThreads, bytes,
           stream, p);
    return true;
  };
  if (!reads_out) return run(causal_heads_kernel<E, false, true>, sizeof(Memory<E, false>));
  return args.summaries != nullptr ? run(causal_heads_kernel<E, true, true>, sizeof(Memory<E, true>))
                                   : run(causal_heads_kernel<E, true, false>, sizeof(Memory<E, true>));
}

#define MHLA_INSTANTIATE(E)                          \
  template bool suits_causal_heads<E>(const Shape&); \
  template bool causal_heads<E>(const CausalHeadArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda::hopper
