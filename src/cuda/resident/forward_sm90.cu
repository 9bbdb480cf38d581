// k and v for the summaries, which are mixed in their slots; then q for the outputs.
#include <algorithm>

#include "cuda/resident/resident_sm90.cuh"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace resident {
namespace {

template <typename E>
struct ForwardParams {
  CUtensorMap q, k, v, o;
  ResidentForwardArgs<E> args;
  Boxes boxes;
  Units units;
};

// o of one block's tiles from its mixture in slot i. A result leaves through the place its tile came in.
template <bool kPaired, typename E>
__device__ void read_out(const Memory& memory, const ForwardParams<E>& p, int unit, int i, unsigned n, unsigned step,
                         int group, int warp) {
  const Shape& shape = p.args.shape;
  const PairFeature<E> feature(shape.feature);
  const int lane = lane_id(), column = (lane & 3) * 2;
  const float* const z = memory.small->mixed_z[i];
  const auto scale = static_cast<float>(shape.scale);
  for (int tile = 0; tile < p.boxes.tiles; ++tile, n += step) {
    memory.ring.wait_for(n);
    std::uint32_t a[4][4];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      load_rows(a[k], memory.ring.address(n), warp, k);
      feature.apply(a[k]);
    }
    float acc[32];
    const auto start = [&](int part) {
      product_fence();
      pin(acc);
      Parts<kPaired>::multiply(part, [&](int k, bool add) {
        warpgroup_product<E, true>(acc, a[k], slot_operand<true>(memory.slot(i), k), add);
      });
      product_commit();
    };
    start(0);

    // factor[row half][head of the unit]
    float factor[2][2];
#pragma unroll
    for (int x = 0; x < 4; ++x) factor[x / 2][x % 2] = scale / static_cast<float>(p.args.store_factor);
    if (p.args.normalize) {
      float dots[2][2] = {};
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int part = 0; part < 4; ++part) {
          const float2 x = unpack<E>(a[k][part]);
          const float2 y = *reinterpret_cast<const float2*>(z + k * 16 + part / 2 * 8 + column);
          dots[part % 2][k / 2] += x.x * y.x + x.y * y.y;
        }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float first = quad_sum(dots[half][0]), second = quad_sum(dots[half][1]);
        if (!p.units.paired) first = second = first + second;
        factor[half][0] /= first * scale + static_cast<float>(shape.eps);
        factor[half][1] /= second * scale + static_cast<float>(shape.eps);
      }
    }
#pragma unroll
    for (int part = 0; part < Parts<kPaired>::kCount; ++part) {
      if (part > 0) start(part);
      product_wait<0>();
      pin(acc);
      Parts<kPaired>::for_each_tile(part, [&](int j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[j * 4 + e] *= factor[e / 2][j / 4];
      });
      Parts<kPaired>::template put<E>(part, memory.ring.address(n), warp, acc);
    }
    fence_shared_writes();
    sync_warpgroup(group);
    if (warp == 0 && lane == 0) {
      store_box(p.o, p.boxes.place(p.boxes.block(i), tile, p.units.number(unit) * kColumns, p.units.batch(unit)),
                memory.ring.tile(n));
      commit_stores();
      wait_stores_read();
    }
    memory.ring.release(n);
  }
}

template <typename E, bool kPaired>
__global__ __launch_bounds__(kThreads, 1) void forward_kernel(const __grid_constant__ ForwardParams<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  const Memory memory(unaligned);
  memory.prepare();
  const Shape& shape = p.args.shape;
  const Boxes& boxes = p.boxes;
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  const int blocks = p.units.blocks, tiles = boxes.tiles;
  unsigned n = 0;

  if (threadIdx.x >= kConsumers) {
    give_registers<kProducerRegisters>();
    if (threadIdx.x != kConsumers) return;
    for (int unit = first; unit < p.units.count; unit += step) {
      const auto fetch = [&](const auto&... maps) { fetch_tiles(memory, boxes, p.units, unit, n, maps...); };
      fetch(p.k, p.v);
      fetch(p.q);
    }
    return;
  }

  take_registers<kConsumerRegisters>();
  const PairFeature<E> feature(shape.feature);
  const int group = warpgroup_id(), warp = static_cast<int>(threadIdx.x) / 32;
  for (int unit = first; unit < p.units.count; unit += step) {
    summarize_and_mix<E>(memory, p, unit, n, group, warp, feature, blocks, tiles, p.args.normalize, [](int) {});
    for_own_blocks(n, group, blocks, tiles, 1, [&](int i, unsigned at, unsigned next) {
      read_out<kPaired>(memory, p, unit, i, at, next, group, warp % 4);
    });
    end_unit(blocks);
  }
#endif
}

}  // namespace
}  // namespace resident

template <typename E>
bool suits_resident_heads(const Shape& shape) {
  const bool whole = shape.key_dim == resident::kColumns;
  const bool paired = shape.key_dim * 2 == resident::kColumns && shape.heads % 2 == 0 && shape.matrices == 1;
  Boxes boxes;
  return (whole || paired) && shape.value_dim == shape.key_dim && shape.heads == shape.kv_heads &&
         shape.masking == Masking::none && shape.initial == 0 && shape.uniform.blocks <= resident::kBlocks &&
         shape.uniform.tokens == static_cast<std::int64_t>(shape.uniform.blocks) * shape.capacity &&
         PairFeature<E>::covers(shape.feature) && available() && find_boxes(shape, boxes) && boxes.rows == kTileRows &&
         // Fewer heads leave too many multiprocessors without one.
         resident::units_of(shape).count >= multiprocessors() / 2;
}

template <typename E>
bool resident_forward(const ResidentForwardArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int heads = shape.heads;
  resident::ForwardParams<E> p{};
  p.args = args;
  if (!suits_resident_heads<E>(shape) || !fits(args.q, heads) || !fits(args.k, heads) || !fits(args.v, heads) ||
      !fits(args.o, heads))
    return false;
  find_boxes(shape, p.boxes);
  p.units = resident::units_of(shape);
  p.q = token_map(args.q, heads, shape.sequences, p.boxes);
  p.k = token_map(args.k, heads, shape.sequences, p.boxes);
  p.v = token_map(args.v, heads, shape.sequences, p.boxes);
  p.o = token_map(args.o, heads, shape.sequences, p.boxes);
  launch("resident heads", p.units.paired ? resident::forward_kernel<E, true> : resident::forward_kernel<E, false>,
         dim3(static_cast<unsigned>(std::min(p.units.count, multiprocessors()))), resident::kThreads,
         resident::kSharedBytes, stream, p);
  return true;
}

#define MHLA_INSTANTIATE(E)                            \
  template bool suits_resident_heads<E>(const Shape&); \
  template bool resident_forward<E>(const ResidentForwardArgs<E>&, cudaStream_t);
MHLA_INSTANTIATE(__nv_bfloat16)
MHLA_INSTANTIATE(__half)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda::hopper
