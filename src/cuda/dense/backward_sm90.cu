// All gradients of a head while its tensors lie on the chip, with r = 1 / den (or 1) and g = dU . o (or 0):
//
//   queries' pass   dQ_t = scale sum_s m (dU_t . v_s - g_t) k_s                        dU = r dO
//   keys' pass      dV_s = scale sum_t m (k_s . q_t) dU_t
//                   dK_s = scale sum_t m (v_s . dU_t - g_t) q_t
//                   d m[i, j] = scale sum_{t in i, s in j} (k_s . q_t) (v_s . dU_t - g_t)
//
// Two warpgroups take 64 rows at a time. Features and dU replace k, q and dO in shared memory; dQ leaves through o's
// place, dK and dV through those of the keys' own rows.
#include "cuda/dense/dense_sm90.cuh"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kMostGroups = 2;
[[maybe_unused]] constexpr int kTilesPerGroup = kDenseTokens / 64 / kMostGroups;
constexpr int kMostBlocks = kDenseTokens / kDenseBlock;

template <typename E>
struct Params {
  CUtensorMap q, k, v, o, d_o, d_q, d_k, d_v;
  DenseBackwardArgs<E> args;
  Boxes boxes;
  int items, tokens, groups;
};

// Beside the tiles.
struct Small {
  float z[kMostBlocks][kDenseColumns], mixed_z[kMostBlocks][kDenseColumns];
  float g[kDenseTokens];
  Barrier key_full[2], full;
};

// Signs of a fragment's elements, one bit each, in the order of the accumulators of the same tile.
template <typename E>
__device__ std::uint32_t positive(const std::uint32_t (&a)[4][4]) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int n = 0; n < 32; ++n) {
    const auto& pair = reinterpret_cast<const E(&)[2]>(a[n / 8][n / 2 % 4]);
    if (to_accumulator(pair[n % 2]) > 0) bits |= 1U << n;
  }
  return bits;
}
[[maybe_unused]] __device__ inline void keep_where(float (&x)[32], std::uint32_t bits, float factor) {
#pragma unroll
  for (int n = 0; n < 32; ++n) x[n] = (bits >> n & 1) != 0 ? x[n] * factor : 0.0F;
}

template <typename E>
__global__ __launch_bounds__(kMostGroups* kWarpgroup,
                             1) void dense_backward_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Math = HalfMath<E>;
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const DenseBackwardArgs<E>& args = p.args;
  const Shape& shape = args.shape;
  const int tile_bytes = p.tokens * kBoxRowBytes, blocks = p.tokens / kDenseBlock, tiles = p.tokens / 64;
  const std::uint32_t base = shared_address(shared), step = static_cast<std::uint32_t>(tile_bytes);
  const std::uint32_t q = base, d_u = base + step, v = base + 2 * step, o = base + 3 * step;
  Small& small = *reinterpret_cast<Small*>(shared + 6 * tile_bytes);
  const int threads = p.groups * kWarpgroup;
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup, lane = lane_id();
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  if (threadIdx.x == 0) {
    init_barrier(small.key_full, 1);
    init_barrier(small.key_full + 1, 1);
    init_barrier(&small.full, 1);
    fence_barrier_init();
  }
  __syncthreads();

  const auto tile_at = [&](int slot) { return shared + slot * tile_bytes; };
  const auto fetch = [&](int slot, const CUtensorMap& map, int item, Barrier* barrier) {
    const int batch = shape.by_heads.divide(item);
    load_head(tile_at(slot), map, p.boxes, item - batch * shape.heads, batch, barrier);
  };
  const auto fetch_keys = [&](int item, int turn) {
    if (threadIdx.x != 0 || item >= p.items) return;
    arrive_expecting(small.key_full + turn, tile_bytes);
    fetch(4 + turn, p.k, item, small.key_full + turn);
  };
  const auto fetch_rest = [&](int item) {
    if (threadIdx.x != 0 || item >= p.items) return;
    arrive_expecting(&small.full, (args.normalize ? 4 : 3) * tile_bytes);
    fetch(0, p.q, item, &small.full);
    fetch(1, p.d_o, item, &small.full);
    if (args.normalize) fetch(3, p.o, item, &small.full);
    fetch(2, p.v, item, &small.full);
  };

  const PairFeature<E> feature(shape.feature);
  const bool is_relu = shape.feature.map == FeatureMap::relu;
  const auto scale = static_cast<float>(shape.scale);
  const int step_items = static_cast<int>(gridDim.x);
  fetch_keys(static_cast<int>(blockIdx.x), 0);
  fetch_rest(static_cast<int>(blockIdx.x));
  int turn = 0;
  for (int item = static_cast<int>(blockIdx.x); item < p.items; item += step_items, ++turn) {
    fetch_keys(item + step_items, (turn + 1) % 2);
    __syncwarp();
    const int batch = shape.by_heads.divide(item), head = item - batch * shape.heads;
    const std::uint32_t k = base + (4 + turn % 2) * step;
    wait(small.key_full + turn % 2, turn / 2 % 2);
    wait(&small.full, turn % 2);

    // Features; sums of keys per block.
    std::uint32_t q_signs[kTilesPerGroup], k_signs[kTilesPerGroup];
#pragma unroll
    for (int n = 0; n < kTilesPerGroup; ++n) {
      const int tile = group + n * p.groups, row = tile * 64 + warp * 16;
      if (tile >= tiles) break;
      std::uint32_t a[4][4];
      load_rows(a, k, row);
      k_signs[n] = is_relu ? positive<E>(a) : ~0U;
#pragma unroll
      for (auto& fragment : a) feature.apply(fragment);
      store_rows(k, row, a);
      load_rows(a, q, row);
      q_signs[n] = is_relu ? positive<E>(a) : ~0U;
#pragma unroll
      for (auto& fragment : a) feature.apply(fragment);
      store_rows(q, row, a);
      if (args.normalize) {
        __syncwarp();
        float low = 0, high = 0;
        for (int r = row; r < row + 16; ++r) {
          std::uint32_t pair;
          asm volatile("ld.shared.b32 %0, [%1];"
                       : "=r"(pair)
                       : "r"(box_piece(k, r, lane / 4) + static_cast<std::uint32_t>(lane % 4 * 4))
                       : "memory");
          low += to_accumulator(reinterpret_cast<const E(&)[2]>(pair)[0]);
          high += to_accumulator(reinterpret_cast<const E(&)[2]>(pair)[1]);
        }
        small.z[row / 16][lane * 2] = low;
        small.z[row / 16][lane * 2 + 1] = high;
      }
    }
    fence_shared_writes();
    sync_threads(threads);

    // dU and g.
    if (args.normalize) {
      for (int tile = group; tile < tiles; tile += p.groups) {
        const int row = tile * 64 + warp * 16, block = row / 16;
        float low = 0, high = 0;
        for (int b = 0; b < blocks; ++b) {
          const float weight = shape.weight<float>(head, block, b);
          low += weight * small.z[b][lane * 2];
          high += weight * small.z[b][lane * 2 + 1];
        }
        small.mixed_z[block][lane * 2] = low;
        small.mixed_z[block][lane * 2 + 1] = high;
        __syncwarp();
        std::uint32_t a[4][4], out[4][4];
        load_rows(a, q, row);
        float dot[4] = {0, 0, 0, 0};
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const auto column = Math::column([&](int j) { return small.mixed_z[block][c * 16 + j]; });
          Math::mma(dot, typename Math::A{{a[c][0], a[c][1], a[c][2], a[c][3]}}, column);
        }
        load_rows(a, d_u, row);
        load_rows(out, o, row);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float inverse = 1 / (Math::column_sum(dot, half) * scale + static_cast<float>(shape.eps));
          float sum = 0;
#pragma unroll
          for (int c = 0; c < 4; ++c)
#pragma unroll
            for (int i = half; i < 4; i += 2) {
              const auto& x = reinterpret_cast<const E(&)[2]>(a[c][i]);
              const auto& y = reinterpret_cast<const E(&)[2]>(out[c][i]);
              const float x0 = to_accumulator(x[0]) * inverse, x1 = to_accumulator(x[1]) * inverse;
              sum += x0 * to_accumulator(y[0]) + x1 * to_accumulator(y[1]);
              a[c][i] = pack<E>(x0, x1);
            }
          sum += __shfl_xor_sync(0xffffffffu, sum, 1);
          sum += __shfl_xor_sync(0xffffffffu, sum, 2);
          if ((lane & 3) == 0) small.g[row + half * 8 + lane / 4] = sum;
        }
        store_rows(d_u, row, a);
      }
      fence_shared_writes();
      sync_threads(threads);
    }

    // Queries.
#pragma unroll
    for (int n = 0; n < kTilesPerGroup; ++n) {
      const int tile = group + n * p.groups, row = tile * 64 + warp * 16;
      if (tile >= tiles) break;
      const float weights = lane < blocks ? shape.weight<float>(head, row / 16, lane) : 0.0F;
      const float g[2] = {args.normalize ? small.g[row + lane / 4] : 0.0F,
                          args.normalize ? small.g[row + lane / 4 + 8] : 0.0F};
      std::uint32_t a[4][4];
      load_rows(a, d_u, row);
      float d_q[32];
      for (int other = 0; other < p.tokens; other += 64) {
        float s[32];
        product_fence();
        pin(s);
        multiply_rows<E>(s, a, v, other);
        product_commit();
        product_wait<0>();
        pin(s);
        pin(d_q);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float weight = __shfl_sync(0xffffffffu, weights, other / kDenseBlock + j);
#pragma unroll
          for (int e = 0; e < 8; ++e) s[j * 8 + e] = (s[j * 8 + e] - g[e >> 1 & 1]) * weight;
        }
        std::uint32_t pairs[4][4];
        round_pairs<E>(pairs, s);
        product_fence();
        multiply_pairs<E>(d_q, pairs, k, other, other > 0);
        product_commit();
      }
      product_wait<0>();
      pin(d_q);
      keep_where(d_q, q_signs[n], scale);
      sync_warpgroup(group);  // all of the group have read their rows of o
      put_boxes<E>(o, p.tokens, row, d_q);
      fence_shared_writes();
      sync_warpgroup(group);
      if (warp == 0) store_blocks(p.d_q, p.boxes, tile * 4, head, batch, tile_at(3));
    }
    sync_threads(threads);  // k and v are read no more but by those who hold their rows

    // Keys.
#pragma unroll
    for (int n = 0; n < kTilesPerGroup; ++n) {
      const int tile = group + n * p.groups, row = tile * 64 + warp * 16;
      if (tile >= tiles) break;
      const float weights = lane < blocks ? shape.weight<float>(head, lane, row / 16) : 0.0F;
      float d_k[32], d_v[32];
      for (int other = 0; other < p.tokens; other += 64) {
        float s[32], d_s[32];
        product_fence();
        pin(s);
        pin(d_s);
        multiply_rows<E>(s, k, tile * 64, q, other);
        multiply_rows<E>(d_s, v, tile * 64, d_u, other);
        product_commit();
        product_wait<0>();
        pin(s);
        pin(d_s);
        pin(d_k);
        pin(d_v);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          float sum = 0;
          const int block = other / kDenseBlock + j;
          const float weight = __shfl_sync(0xffffffffu, weights, block);
#pragma unroll
          for (int t = 0; t < 2; ++t) {
            float2 g = make_float2(0, 0);
            if (args.normalize)
              g = *reinterpret_cast<const float2*>(small.g + block * kDenseBlock + t * 8 + (lane & 3) * 2);
#pragma unroll
            for (int e = 0; e < 4; ++e) {
              const int at = j * 8 + t * 4 + e;
              d_s[at] -= (e & 1) != 0 ? g.y : g.x;
              sum += s[at] * d_s[at];
              s[at] *= weight;
              d_s[at] *= weight;
            }
          }
          if (args.pair_sums != nullptr) {
            for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
            if (lane == 0)
              args.pair_sums[(static_cast<std::int64_t>(item) * blocks + block) * blocks + row / 16] = sum * scale;
          }
        }
        std::uint32_t pairs[4][4], d_pairs[4][4];
        round_pairs<E>(pairs, s);
        round_pairs<E>(d_pairs, d_s);
        product_fence();
        multiply_pairs<E>(d_v, pairs, d_u, other, other > 0);
        multiply_pairs<E>(d_k, d_pairs, q, other, other > 0);
        product_commit();
        product_wait<0>();
        pin(d_v);
        pin(d_k);
      }
      pin(d_k);
      pin(d_v);
      keep_where(d_k, k_signs[n], scale);
      keep_where(d_v, ~0U, scale);
      sync_warpgroup(group);  // no product reads the group's rows any more
      put_boxes<E>(k, p.tokens, row, d_k);
      put_boxes<E>(v, p.tokens, row, d_v);
      fence_shared_writes();
      sync_warpgroup(group);
      if (warp == 0) {
        store_blocks(p.d_k, p.boxes, tile * 4, head, batch, tile_at(4 + turn % 2));
        store_blocks(p.d_v, p.boxes, tile * 4, head, batch, tile_at(2));
      }
    }
    if (warp == 0) wait_stores_read();
    sync_threads(threads);
    fetch_rest(item + step_items);
  }
#endif
}

}  // namespace

template <typename E>
bool dense_backward(const DenseBackwardArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  Params<E> p{};
  p.args = args;
  const int heads = shape.heads;
  if (!PairFeature<E>::covers(shape.feature) || !fits(args.q, heads) || !fits(args.k, heads) || !fits(args.v, heads) ||
      (args.normalize && !fits(args.o, heads)) || !fits(args.d_o, heads) || !fits(args.d_q, heads) ||
      !fits(args.d_k, heads) || !fits(args.d_v, heads) || !suits_dense(shape, p.boxes))
    return false;
  const int batch = shape.sequences;
  if (!head_map(args.q, heads, batch, p.boxes, p.q) || !head_map(args.k, heads, batch, p.boxes, p.k) ||
      !head_map(args.v, heads, batch, p.boxes, p.v) ||
      !head_map(args.normalize ? args.o : args.q, heads, batch, p.boxes, p.o) ||  // read with a normaliser only
      !head_map(args.d_o, heads, batch, p.boxes, p.d_o))
    return false;
  p.d_q = token_map(args.d_q, heads, batch, p.boxes);
  p.d_k = token_map(args.d_k, heads, batch, p.boxes);
  p.d_v = token_map(args.d_v, heads, batch, p.boxes);
  p.tokens = static_cast<int>(shape.uniform.tokens);
  p.items = shape.sequences * heads;
  p.groups = std::min(kMostGroups, p.tokens / 64);
  launch("dense gradient", dense_backward_kernel<E>, dim3(static_cast<unsigned>(std::min(p.items, multiprocessors()))),
         p.groups * kWarpgroup, static_cast<std::size_t>(6 * p.tokens * kBoxRowBytes) + sizeof(Small) + 1024, stream,
         p);
  return true;
}

template bool dense_backward<__nv_bfloat16>(const DenseBackwardArgs<__nv_bfloat16>&, cudaStream_t);
template bool dense_backward<__half>(const DenseBackwardArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
