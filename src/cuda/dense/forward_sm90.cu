// One warpgroup per 64 queries of a head. The first thread fetches q, k and v of the next head meanwhile: a warp of its
// own would cost the others a quarter of their registers. o leaves through the place q came in.
#include "cuda/dense/dense_sm90.cuh"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kMostThreads = kDenseTokens / 64 * kWarpgroup;
constexpr int kStages = 2;

template <typename E>
struct Params {
  CUtensorMap q, k, v, o;
  DenseForwardArgs<E> args;
  Boxes boxes;
  int items, tokens;
};

template <typename E>
__global__ __launch_bounds__(kMostThreads, 1) void dense_forward_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const Shape& shape = p.args.shape;
  const int tile_bytes = p.tokens * kBoxRowBytes, blocks = p.tokens / kDenseBlock, groups = p.tokens / 64;
  auto* const full = reinterpret_cast<Barrier*>(shared + kStages * 3 * tile_bytes);
  Barrier* const empty = full + kStages;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = lane_id(), group = warp / 4;
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      init_barrier(full + s, 1);
      init_barrier(empty + s, groups);
    }
    fence_barrier_init();
  }
  __syncthreads();

  Turn turn, fetching;
  const auto fetch = [&](int item) {
    if (threadIdx.x != 0 || item >= p.items) return;
    const int batch = shape.by_heads.divide(item), head = item - batch * shape.heads;
    unsigned char* const to = shared + fetching.at * 3 * tile_bytes;
    Barrier* const barrier = full + fetching.at;
    wait(empty + fetching.at, fetching.parity ^ 1);
    arrive_expecting(barrier, 3 * tile_bytes);
    load_head(to + tile_bytes, p.k, p.boxes, head, batch, barrier);
    load_head(to, p.q, p.boxes, head, batch, barrier);
    load_head(to + 2 * tile_bytes, p.v, p.boxes, head, batch, barrier);
    fetching.next(kStages);
  };

  const PairFeature<E> feature(shape.feature);
  const bool is_identity = shape.feature.map == FeatureMap::identity && shape.feature.eps == 0;
  const int row = warp * 16;
  fetch(static_cast<int>(blockIdx.x));
  for (int item = static_cast<int>(blockIdx.x); item < p.items;
       item += static_cast<int>(gridDim.x), turn.next(kStages)) {
    fetch(item + static_cast<int>(gridDim.x));
    __syncwarp();
    const int batch = shape.by_heads.divide(item), head = item - batch * shape.heads;
    const std::uint32_t q = shared_address(shared) + static_cast<std::uint32_t>(turn.at * 3 * tile_bytes);
    const std::uint32_t k = q + static_cast<std::uint32_t>(tile_bytes), v = k + static_cast<std::uint32_t>(tile_bytes);
    const float weights = lane < blocks ? shape.weight<float>(shape.matrix(batch, head), warp, lane) : 0.0F;
    wait(full + turn.at, turn.parity);
    std::uint32_t a[4][4];
    if (!is_identity) {
      load_rows(a, k, row);
#pragma unroll
      for (auto& fragment : a) feature.apply(fragment);
      store_rows(k, row, a);
      fence_shared_writes();
    }
    load_rows(a, q, row);
#pragma unroll
    for (auto& fragment : a) feature.apply(fragment);
    if (!is_identity) sync_threads(groups * kWarpgroup);

    float o[32], sums[2] = {0, 0};
    for (int other = 0; other < p.tokens; other += 64) {
      float s[32];
      product_fence();
      pin(s);
      multiply_rows<E>(s, a, k, other);
      product_commit();
      product_wait<0>();
      pin(s);
      pin(o);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float weight = __shfl_sync(0xffffffffu, weights, other / kDenseBlock + j);
#pragma unroll
        for (int e = 0; e < 8; ++e) {
          s[j * 8 + e] *= weight;
          sums[e >> 1 & 1] += s[j * 8 + e];
        }
      }
      std::uint32_t pairs[4][4];
      round_pairs<E>(pairs, s);
      product_fence();
      multiply_pairs<E>(o, pairs, v, other, other > 0);
      product_commit();
    }
    product_wait<0>();
    pin(o);

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      auto factor = static_cast<float>(shape.scale);
      if (p.args.normalize) {
        float sum = sums[half] + __shfl_xor_sync(0xffffffffu, sums[half], 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        factor /= sum * factor + static_cast<float>(shape.eps);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        o[j * 4 + half * 2] *= factor;
        o[j * 4 + half * 2 + 1] *= factor;
      }
    }
    put_boxes<E>(q, p.tokens, row, o);
    fence_shared_writes();
    sync_warpgroup(group);
    if (warp % 4 == 0) {
      store_blocks(p.o, p.boxes, group * 4, head, batch, shared + turn.at * 3 * tile_bytes);
      wait_stores_read();
      __syncwarp();
      if (lane == 0) arrive(empty + turn.at);
    }
  }
#endif
}

}  // namespace

template <typename E>
bool dense_forward(const DenseForwardArgs<E>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  Params<E> p{};
  p.args = args;
  const int heads = shape.heads;
  if (!PairFeature<E>::covers(shape.feature) || !fits(args.q, heads) || !fits(args.k, heads) || !fits(args.v, heads) ||
      !fits(args.o, heads) || !suits_dense(shape, p.boxes) || !head_map(args.q, heads, shape.sequences, p.boxes, p.q) ||
      !head_map(args.k, heads, shape.sequences, p.boxes, p.k) ||
      !head_map(args.v, heads, shape.sequences, p.boxes, p.v))
    return false;
  p.o = token_map(args.o, heads, shape.sequences, p.boxes);
  p.tokens = static_cast<int>(shape.uniform.tokens);
  p.items = shape.sequences * heads;
  const int groups = p.tokens / 64;
  launch("dense", dense_forward_kernel<E>, dim3(static_cast<unsigned>(std::min(p.items, multiprocessors()))),
         groups * kWarpgroup, static_cast<std::size_t>(kStages * 3 * p.tokens * kBoxRowBytes + 64 + 1024), stream, p);
  return true;
}

template bool dense_forward<__nv_bfloat16>(const DenseForwardArgs<__nv_bfloat16>&, cudaStream_t);
template bool dense_forward<__half>(const DenseForwardArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
