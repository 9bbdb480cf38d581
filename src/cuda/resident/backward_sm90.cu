// Three passes over the tokens of a head: k and v for the summaries, which are mixed in their slots; q, d_o and o for
// dq and dS~, which replaces the mixture of its block; and, once dS~ is mixed into dS, k and v again for dk and dv. S
// itself is needed once more for the mixing gradient and waits in device memory, 128 KiB per thread block, used over
// and over.
#include <algorithm>

#include "cuda/resident/resident_sm90.cuh"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace resident {
namespace {

constexpr int kSlotElements = kColumns * kColumns;

template <typename E>
struct BackwardParams {
  CUtensorMap q, k, v, o, d_o, d_q, d_k, d_v;
  ResidentBackwardArgs<E> args;
  Boxes boxes;
  Units units;
  bool is_relu;
};

// Accumulators of a part become zero where relu was.
template <bool kPaired, typename E>
__device__ void mask(int part, float (&acc)[32], std::uint32_t raw, int warp) {
  constexpr int kSteps = Parts<kPaired>::kSteps;
#pragma unroll
  for (int k = part * kSteps; k < (part + 1) * kSteps; ++k) {
    std::uint32_t fragment[4];
    load_rows(fragment, raw, warp, k);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float2 x = unpack<E>(fragment[part]);
      if (!(x.x > 0)) acc[k * 8 + part * 2] = 0;
      if (!(x.y > 0)) acc[k * 8 + part * 2 + 1] = 0;
    }
  }
}

// S_b as it lies in its slot, this warp's rows.
template <typename E>
__device__ void keep_slot(const Memory& memory, E* scratch, int b, int warp) {
  __syncwarp();
  const int lane = lane_id();
  auto* const to = reinterpret_cast<uint4*>(scratch + b * kSlotElements + warp * 16 * kColumns) + lane;
  const auto* const from =
      reinterpret_cast<const uint4*>(memory.slot_memory() + b * kSlotBytes + warp * 16 * kBoxRowBytes) + lane;
#pragma unroll
  for (int n = 0; n < 4; ++n) __stcg(to + n * 32, from[n * 32]);
}

// d_o of a tile becomes dU = d_o / den, and g = d den is noted for every token, by the 16 tokens of a warp.
template <typename E>
__device__ void divide(const Memory& memory, const BackwardParams<E>& p, int i, unsigned n, int group, int warp,
                       float (&g)[2][2]) {
  const Shape& shape = p.args.shape;
  const PairFeature<E> feature(shape.feature);
  const int lane = lane_id(), column = (lane & 3) * 2;
  const std::uint32_t q = memory.ring.address(n), d_o = memory.ring.address(n + 1), o = memory.ring.address(n + 2);
  const float* const z = memory.small->mixed_z[i];
  float denominator[2][2] = {}, dots[2][2] = {};  // [row half][head of the unit]
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t a[4], b[4], c[4];
    load_rows(a, q, warp, k);
    load_rows(b, d_o, warp, k);
    load_rows(c, o, warp, k);
    feature.apply(a);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float2 x = unpack<E>(a[part]), y = unpack<E>(b[part]), w = unpack<E>(c[part]);
      const float2 mixed = *reinterpret_cast<const float2*>(z + k * 16 + part / 2 * 8 + column);
      denominator[part % 2][k / 2] += x.x * mixed.x + x.y * mixed.y;
      dots[part % 2][k / 2] += y.x * w.x + y.y * w.y;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      denominator[half][head] = quad_sum(denominator[half][head]);
      dots[half][head] = quad_sum(dots[half][head]);
    }
    if (!p.units.paired) {
      denominator[half][0] = denominator[half][1] = denominator[half][0] + denominator[half][1];
      dots[half][0] = dots[half][1] = dots[half][0] + dots[half][1];
    }
#pragma unroll
    for (int head = 0; head < 2; ++head) {
      denominator[half][head] =
          1 / (denominator[half][head] * static_cast<float>(shape.scale) + static_cast<float>(shape.eps));
      g[half][head] = -dots[half][head] * denominator[half][head];
      if ((lane & 3) == 0) memory.small->g[group][head][warp * 16 + half * 8 + (lane >> 2)] = g[half][head];
    }
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    std::uint32_t b[4];
    load_rows(b, d_o, warp, k);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const float2 x = unpack<E>(b[part]);
      const float inverse = denominator[part % 2][k / 2];
      b[part] = pack<E>(x.x * inverse, x.y * inverse);
    }
    store_matrices(box_piece(d_o, warp * 16 + (lane & 15), k * 2 + (lane >> 4)), b);
  }
  fence_shared_writes();
  memory.ring.release(n + 2);  // all that was loaded of it is in use
}

// dq of one block's tiles from its mixture in slot i, which dS~_i then replaces; dz~_i.
template <bool kPaired, typename E>
__device__ void differentiate_queries(const Memory& memory, const BackwardParams<E>& p, int unit, int i, unsigned n,
                                      unsigned step, int group, int warp) {
  const Shape& shape = p.args.shape;
  const PairFeature<E> feature(shape.feature);
  const int lane = lane_id(), column = (lane & 3) * 2;
  const bool normalize = p.args.normalize;
  const auto scale = static_cast<float>(shape.scale);
  const float factor = scale / static_cast<float>(p.args.store_factor);
  float d_mixed[32], sums[2] = {0, 0};
  for (int tile = 0; tile < p.boxes.tiles; ++tile, n += step) {
    const std::uint32_t q = memory.ring.address(n), dU = memory.ring.address(n + 1);
    float g[2][2];
    memory.ring.wait_for(n);
    memory.ring.wait_for(n + 1);
    if (normalize) {
      memory.ring.wait_for(n + 2);
      divide(memory, p, i, n, group, warp, g);
      sync_warpgroup(group);
    }
    float acc[32];
    const auto multiply = [&](int part) {
      Parts<kPaired>::multiply(part, [&](int k, bool add) {
        warpgroup_product<E, false, false>(acc, product_operand(dU + static_cast<std::uint32_t>(k * 32), 16),
                                           slot_operand<false>(memory.slot(i), k), add);
      });
    };
    {
      std::uint32_t a[4][4];
      load_columns(a, q, warp, feature);
      product_fence();
      pin(acc);
      multiply(0);
      pin(d_mixed);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        warpgroup_product<E, true>(d_mixed, a[k], slot_operand<true>(dU, k), tile > 0 || k > 0);
      product_commit();
      if (normalize) {
        const float* const weights = memory.small->g[group][p.units.paired ? warp / 2 : 0];
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int part = 0; part < 4; ++part) {
            const float2 x = unpack<E>(a[k][part]);
            const float2 weight = *reinterpret_cast<const float2*>(weights + k * 16 + part / 2 * 8 + column);
            sums[part % 2] += x.x * weight.x + x.y * weight.y;
          }
      }
      product_wait<0>();
      pin(acc);
      pin(d_mixed);
    }
#pragma unroll
    for (int part = 0; part < Parts<kPaired>::kCount; ++part) {
      if (part > 0) {
        product_fence();
        pin(acc);
        multiply(part);
        product_commit();
        product_wait<0>();
        pin(acc);
      }
      if (part + 1 == Parts<kPaired>::kCount) memory.ring.release(n + 1);
      Parts<kPaired>::for_each_tile(part, [&](int j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[j * 4 + e] *= factor;
      });
      if (normalize) {
        Parts<kPaired>::for_each_tile(part, [&](int j) {
          const float2 z = *reinterpret_cast<const float2*>(memory.small->mixed_z[i] + j * 8 + column);
#pragma unroll
          for (int e = 0; e < 4; ++e) acc[j * 4 + e] += g[e / 2][j / 4] * scale * (e % 2 == 0 ? z.x : z.y);
        });
      }
      if (p.is_relu) mask<kPaired, E>(part, acc, q, warp);
      if (part == 0) sync_warpgroup(group);  // q has been read by all, in both directions
      Parts<kPaired>::template put<E>(part, q, warp, acc);
    }
    fence_shared_writes();
    sync_warpgroup(group);
    if (warp == 0 && lane == 0) {
      store_box(p.d_q, p.boxes.place(p.boxes.block(i), tile, p.units.number(unit) * kColumns, p.units.batch(unit)),
                memory.ring.tile(n));
      commit_stores();
      wait_stores_read();
    }
    memory.ring.release(n);
  }
  put_slot<E>(memory, i, warp, p.units.paired, scale, d_mixed);
  if (!normalize) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = quad_sum(sums[half]) * scale;
    if ((lane & 3) == 0) memory.small->d_mixed_z[i][warp * 16 + half * 8 + (lane >> 2)] = sum;
  }
}

// This warp's four rows of <dS~_i, S_e>. Which columns meet in a step of the product is free, so both sides are read
// as they lie, 16 bytes at a time.
template <typename E>
__device__ void multiply_slots(const Memory& memory, const E* scratch, int warp, float (&acc)[2][4]) {
  using Math = HalfMath<E>;
  const int lane = lane_id(), row = lane >> 2;
  const auto at = [](int b, int r, int piece) { return r * kBoxRowBytes + ((piece ^ ((r + b) & 7)) << 4); };
  const auto in_slot = [&](int b, int r, int piece) {
    return *reinterpret_cast<const uint4*>(memory.slot_memory() + b * kSlotBytes + at(b, r, piece));
  };
  const auto in_scratch = [&](int b, int r, int piece) {
    return __ldcg(reinterpret_cast<const uint4*>(reinterpret_cast<const unsigned char*>(scratch + b * kSlotElements) +
                                                 at(b, r, piece)));
  };
#pragma unroll
  for (int x = 0; x < 8; ++x) {
    const int r = warp * 4 + x / 2, piece = x % 2 * 4 + (lane & 3);
    const uint4 low = in_slot(row, r, piece), high = in_slot(row + 8, r, piece);
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const uint4 other = in_scratch(row + e * 8, r, piece);
      Math::mma(acc[e], typename Math::A{{low.x, high.x, low.y, high.y}}, typename Math::B{{other.x, other.y}});
      Math::mma(acc[e], typename Math::A{{low.z, high.z, low.w, high.w}}, typename Math::B{{other.z, other.w}});
    }
  }
}

// d m[i, e] = <dS~_i, S_e> + <dz~_i, z_e> of this unit, from the rows of all warps; by all consumers. z~ is not needed
// any more.
template <typename E>
__device__ void put_pairs(const Memory& memory, const BackwardParams<E>& p, int unit, int warp,
                          const float (&acc)[2][4]) {
  static_assert(sizeof(Small::mixed_z) == 4 * kBlocks * kBlocks * sizeof(float));
  auto& parts = reinterpret_cast<float(&)[4][kBlocks][kBlocks]>(memory.small->mixed_z);
  const int lane = lane_id();
  for (int group = 0; group < kGroups; ++group) {
    if (warp / 4 == group) {
#pragma unroll
      for (int e = 0; e < 2; ++e)
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          float& part = parts[warp % 4][(lane >> 2) + x / 2 * 8][e * 8 + (lane & 3) * 2 + x % 2];
          part = group > 0 ? part + acc[e][x] : acc[e][x];
        }
    }
    sync_threads(kConsumers);
  }
  const int n = static_cast<int>(threadIdx.x), i = n / kBlocks, e = n % kBlocks;
  if (i >= p.units.blocks || e >= p.units.blocks) return;
  float sum = 0;
  for (int part = 0; part < 4; ++part) sum += parts[part][i][e];
  sum /= static_cast<float>(p.args.store_factor);
  if (p.args.normalize)
    for (int x = 0; x < kColumns; ++x) {
      const int d = (x + e) % kColumns;  // lanes on different banks
      sum += memory.small->d_mixed_z[i][d] * memory.small->z[e][d];
    }
  const int heads = p.units.paired ? 2 : 1, size = p.units.blocks * p.units.blocks;
  float* const to = p.args.pairs + static_cast<std::int64_t>(unit) * heads * size + i * p.units.blocks + e;
  *to = sum;
  if (p.units.paired) to[size] = 0;  // both heads are in the sum
}

// dk and dv of one block's tiles from dS in slot e. dk leaves through the place of v, dv through that of k.
template <bool kPaired, typename E>
__device__ void differentiate_keys(const Memory& memory, const BackwardParams<E>& p, int unit, int e, unsigned n,
                                   unsigned step, int group, int warp) {
  const Shape& shape = p.args.shape;
  const PairFeature<E> feature(shape.feature);
  const int lane = lane_id(), column = (lane & 3) * 2;
  const float* const dz = memory.small->mixed_z[e];
  for (int tile = 0; tile < p.boxes.tiles; ++tile, n += step) {
    const std::uint32_t k_tile = memory.ring.address(n), v_tile = memory.ring.address(n + 1);
    memory.ring.wait_for(n);
    memory.ring.wait_for(n + 1);
    float acc[32];
    const auto start_d_k = [&](int part) {
      product_fence();
      pin(acc);
      Parts<kPaired>::multiply(part, [&](int k, bool add) {
        warpgroup_product<E, false, false>(acc, product_operand(v_tile + static_cast<std::uint32_t>(k * 32), 16),
                                           slot_operand<false>(memory.slot(e), k), add);
      });
      product_commit();
    };
    start_d_k(0);
    std::uint32_t a[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      load_rows(a[k], k_tile, warp, k);
      feature.apply(a[k]);
    }
#pragma unroll
    for (int part = 0; part < Parts<kPaired>::kCount; ++part) {
      if (part > 0) start_d_k(part);
      product_wait<0>();
      pin(acc);
      if (p.args.normalize) {
        Parts<kPaired>::for_each_tile(part, [&](int j) {
          const float2 z = *reinterpret_cast<const float2*>(dz + j * 8 + column);
#pragma unroll
          for (int x = 0; x < 4; ++x) acc[j * 4 + x] += x % 2 == 0 ? z.x : z.y;
        });
      }
      if (p.is_relu) mask<kPaired, E>(part, acc, k_tile, warp);
      // The columns of v that the next part needs are others.
      Parts<kPaired>::template put<E>(part, v_tile, warp, acc);
    }

#pragma unroll
    for (int part = 0; part < Parts<kPaired>::kCount; ++part) {
      product_fence();
      pin(acc);
      Parts<kPaired>::multiply(part, [&](int k, bool add) {
        warpgroup_product<E, true>(acc, a[k], slot_operand<true>(memory.slot(e), k), add);
      });
      product_commit();
      product_wait<0>();
      pin(acc);
      Parts<kPaired>::template put<E>(part, k_tile, warp, acc);
    }
    fence_shared_writes();
    sync_warpgroup(group);
    if (warp == 0 && lane == 0) {
      const BoxPlace at = p.boxes.place(p.boxes.block(e), tile, p.units.number(unit) * kColumns, p.units.batch(unit));
      store_box(p.d_k, at, memory.ring.tile(n + 1));
      store_box(p.d_v, at, memory.ring.tile(n));
      commit_stores();
      wait_stores_read();
    }
    memory.ring.release(n);
    memory.ring.release(n + 1);
  }
}

template <typename E, bool kPaired>
__global__ __launch_bounds__(kThreads, 1) void backward_kernel(const __grid_constant__ BackwardParams<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  const Memory memory(unaligned);
  memory.prepare();
  const Shape& shape = p.args.shape;
  const Boxes& boxes = p.boxes;
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  const int blocks = p.units.blocks, tiles = boxes.tiles;
  const bool normalize = p.args.normalize;
  unsigned n = 0;

  if (threadIdx.x >= kConsumers) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x != kConsumers) return;
    for (int unit = first; unit < p.units.count; unit += step) {
      const auto fetch = [&](const auto&... maps) { fetch_tiles(memory, boxes, p.units, unit, n, maps...); };
      fetch(p.k, p.v);
      normalize ? fetch(p.q, p.d_o, p.o) : fetch(p.q, p.d_o);
      fetch(p.k, p.v);
    }
    return;
  }

  take_registers<kConsumerRegisters>();
  const PairFeature<E> feature(shape.feature);
  const int group = warpgroup_id(), warp = static_cast<int>(threadIdx.x) / 32;
  E* const scratch = p.args.scratch + static_cast<std::int64_t>(blockIdx.x) * kBlocks * kSlotElements;
  for (int unit = first; unit < p.units.count; unit += step) {
    summarize_and_mix<E>(memory, p, unit, n, group, warp, feature, blocks, tiles, normalize, [&](int e) {
      if (p.args.pairs != nullptr) keep_slot(memory, scratch, e, warp % 4);
    });
    for_own_blocks(n, group, blocks, tiles, normalize ? 3 : 2, [&](int i, unsigned at, unsigned next) {
      differentiate_queries<kPaired>(memory, p, unit, i, at, next, group, warp % 4);
    });
    sync_threads(kConsumers);
    float pairs[2][4] = {};
    if (p.args.pairs != nullptr) multiply_slots(memory, scratch, warp, pairs);
    __syncwarp();
    mix_slots<E, true>(memory, blocks, warp);
    if (p.args.pairs != nullptr) put_pairs(memory, p, unit, warp, pairs);
    sync_threads(kConsumers);
    if (normalize) mix_vectors<true>(*memory.small, memory.small->d_mixed_z, memory.small->mixed_z);
    fence_shared_writes();
    sync_threads(kConsumers);
    for_own_blocks(n, group, blocks, tiles, 2, [&](int e, unsigned at, unsigned next) {
      differentiate_keys<kPaired>(memory, p, unit, e, at, next, group, warp % 4);
    });
    end_unit(blocks);
  }
#endif
}

}  // namespace
}  // namespace resident

std::int64_t resident_backward_scratch(const Shape& shape) {
  return static_cast<std::int64_t>(std::min(resident::units_of(shape).count, multiprocessors())) * resident::kBlocks *
         resident::kSlotElements;
}

template <typename E>
bool resident_backward(const ResidentBackwardArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int heads = shape.heads;
  resident::BackwardParams<E> p{};
  p.args = args;
  if (!suits_resident_heads<E>(shape) || !fits(args.q, heads) || !fits(args.k, heads) || !fits(args.v, heads) ||
      (args.normalize && !fits(args.o, heads)) || !fits(args.d_o, heads) || !fits(args.d_q, heads) ||
      !fits(args.d_k, heads) || !fits(args.d_v, heads))
    return false;
  find_boxes(shape, p.boxes);
  p.units = resident::units_of(shape);
  p.is_relu = shape.feature.map == FeatureMap::relu;
  const auto map = [&](const auto& x) { return token_map(x, heads, shape.sequences, p.boxes); };
  p.q = map(args.q), p.k = map(args.k), p.v = map(args.v), p.d_o = map(args.d_o);
  if (args.normalize) p.o = map(args.o);
  p.d_q = map(args.d_q), p.d_k = map(args.d_k), p.d_v = map(args.d_v);
  launch("gradients of resident heads",
         p.units.paired ? resident::backward_kernel<E, true> : resident::backward_kernel<E, false>,
         dim3(static_cast<unsigned>(std::min(p.units.count, multiprocessors()))), resident::kThreads,
         resident::kSharedBytes, stream, p);
  return true;
}

template bool resident_backward<__nv_bfloat16>(const ResidentBackwardArgs<__nv_bfloat16>&, cudaStream_t);
template bool resident_backward<__half>(const ResidentBackwardArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
