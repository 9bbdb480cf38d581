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
namespace dense_gradients {

inline constexpr int kMostGroups = 2, kTilesPerGroup = kDenseTokens / 64 / kMostGroups;
inline constexpr int kMostBlocks = kDenseTokens / kDenseBlock;

template <typename E>
struct Params {
  CUtensorMap q, k, v, o, d_o, d_q, d_k, d_v;
  DenseBackwardArgs<E> args;
  Boxes boxes;
  int items, tokens, groups;
};

// Shared memory: a tile of all tokens of a head for every tensor, then what is small. Keys have two tiles, which heads
// take by turns: the keys of the next head come early.
struct Memory {
  struct Small {
    float z[kMostBlocks][kDenseColumns], mixed_z[kMostBlocks][kDenseColumns];
    float g[kDenseTokens];
    Barrier key_full[2], full;
  };
  static constexpr int kTiles = 6;  // q, dU (dO at first), v, o, k and the next k
  unsigned char* tiles;
  int tile_bytes;
  Small* small;

  __device__ Memory(unsigned char* unaligned, int tokens)
      : tiles(unaligned + (1024 - shared_address(unaligned) % 1024) % 1024), tile_bytes(tokens * kBoxRowBytes),
        small(reinterpret_cast<Small*>(tiles + kTiles * tile_bytes)) {}
  __device__ unsigned char* q() const { return tiles; }
  __device__ unsigned char* d_u() const { return tiles + tile_bytes; }
  __device__ unsigned char* v() const { return tiles + 2 * tile_bytes; }
  __device__ unsigned char* o() const { return tiles + 3 * tile_bytes; }
  __device__ unsigned char* k(int turn) const { return tiles + (4 + turn % 2) * tile_bytes; }
  static std::size_t bytes(int tokens) {
    return static_cast<std::size_t>(kTiles * tokens * kBoxRowBytes) + sizeof(Small) + 1024;  // the last: alignment
  }

  // By one thread.
  __device__ void prepare() const {
    init_barrier(small->key_full, 1);
    init_barrier(small->key_full + 1, 1);
    init_barrier(&small->full, 1);
    fence_barrier_init();
  }
};

// What stays the same for a warp from head to head.
template <typename E>
struct Warp {
  const Memory& memory;
  const Params<E>& p;
  std::uint32_t q, d_u, v, o;  // addresses
  int group, warp, lane;
  int blocks, tiles;  // of 16 and 64 tokens
  PairFeature<E> feature;
  bool is_relu;
  float scale;

  __device__ Warp(const Memory& shared, const Params<E>& params)
      : memory(shared), p(params), q(shared_address(memory.q())), d_u(shared_address(memory.d_u())),
        v(shared_address(memory.v())), o(shared_address(memory.o())), group(static_cast<int>(threadIdx.x) / kWarpgroup),
        warp(static_cast<int>(threadIdx.x) / 32 % 4), lane(lane_id()), blocks(p.tokens / kDenseBlock),
        tiles(p.tokens / 64), feature(p.args.shape.feature), is_relu(p.args.shape.feature.map == FeatureMap::relu),
        scale(static_cast<float>(p.args.shape.scale)) {}

  // f(tile, the warp's first row of it, n) for every tile of 64 rows that is this warpgroup's; it is its n-th.
  template <typename F>
  __device__ void for_own_tiles(F&& f) const {
#pragma unroll
    for (int n = 0; n < kTilesPerGroup; ++n) {
      const int tile = group + n * p.groups, row = tile * 64 + warp * 16;
      if (tile >= tiles) break;
      f(tile, row, n);
    }
  }
  __device__ void sync() const { sync_threads(p.groups * kWarpgroup); }
};

// A head on the chip.
template <typename E>
struct Head : Warp<E> {
  int item, turn, batch, number;
  std::uint32_t k;

  __device__ Head(const Warp<E>& warp, int item_, int turn_) : Warp<E>(warp), item(item_), turn(turn_) {
    const Shape& shape = warp.p.args.shape;
    batch = shape.by_heads.divide(item);
    number = item - batch * shape.heads;
    k = shared_address(warp.memory.k(turn));
  }
  // m[i, j]
  __device__ float weight(int i, int j) const {
    const Shape& shape = this->p.args.shape;
    return shape.template weight<float>(shape.matrix(batch, number), i, j);
  }
};

namespace {

// ---- copies, by the first thread

template <typename E>
__device__ void fetch(unsigned char* to, const CUtensorMap& map, const Params<E>& p, int item, Barrier* barrier) {
  const int batch = p.args.shape.by_heads.divide(item);
  load_head(to, map, p.boxes, item - batch * p.args.shape.heads, batch, barrier);
}
template <typename E>
__device__ void fetch_keys(const Memory& memory, const Params<E>& p, int item, int turn) {
  if (threadIdx.x != 0 || item >= p.items) return;
  Barrier* const full = memory.small->key_full + turn % 2;
  arrive_expecting(full, memory.tile_bytes);
  fetch(memory.k(turn), p.k, p, item, full);
}
template <typename E>
__device__ void fetch_rest(const Memory& memory, const Params<E>& p, int item) {
  if (threadIdx.x != 0 || item >= p.items) return;
  Barrier* const full = &memory.small->full;
  arrive_expecting(full, (p.args.normalize ? 4 : 3) * memory.tile_bytes);
  fetch(memory.q(), p.q, p, item, full);
  fetch(memory.d_u(), p.d_o, p, item, full);
  if (p.args.normalize) fetch(memory.o(), p.o, p, item, full);
  fetch(memory.v(), p.v, p, item, full);
}

// ---- features

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

// phi of a warp's 16 rows, in their place. Returns where the derivative of phi is not zero.
template <typename E>
__device__ std::uint32_t apply_feature(std::uint32_t tile, int row, const PairFeature<E>& feature, bool is_relu) {
  std::uint32_t a[4][4];
  load_rows(a, tile, row);
  const std::uint32_t signs = is_relu ? positive<E>(a) : ~0U;
#pragma unroll
  for (auto& fragment : a) feature.apply(fragment);
  store_rows(tile, row, a);
  return signs;
}

// z_b, the sum of the keys of the block that is these 16 rows.
template <typename E>
__device__ void sum_keys(const Head<E>& head, int row) {
  const int lane = head.lane;
  float low = 0, high = 0;
  for (int r = row; r < row + 16; ++r) {
    std::uint32_t pair;
    asm volatile("ld.shared.b32 %0, [%1];"
                 : "=r"(pair)
                 : "r"(box_piece(head.k, r, lane / 4) + static_cast<std::uint32_t>(lane % 4 * 4))
                 : "memory");
    low += to_accumulator(reinterpret_cast<const E(&)[2]>(pair)[0]);
    high += to_accumulator(reinterpret_cast<const E(&)[2]>(pair)[1]);
  }
  head.memory.small->z[row / 16][lane * 2] = low;
  head.memory.small->z[row / 16][lane * 2 + 1] = high;
}

// ---- dU and g

// z~_i = sum_b m[i, b] z_b, by a warp.
template <typename E>
__device__ void mix_z(const Head<E>& head, int i) {
  Memory::Small& small = *head.memory.small;
  const int lane = head.lane;
  float low = 0, high = 0;
  for (int b = 0; b < head.blocks; ++b) {
    const float weight = head.weight(i, b);
    low += weight * small.z[b][lane * 2];
    high += weight * small.z[b][lane * 2 + 1];
  }
  small.mixed_z[i][lane * 2] = low;
  small.mixed_z[i][lane * 2 + 1] = high;
  __syncwarp();
}

// a = r a for the rows of a half of the fragments, that is, dO becomes dU; returns this lane's part of g = dU . o.
template <typename E>
__device__ float divide_rows(std::uint32_t (&a)[4][4], const std::uint32_t (&out)[4][4], int half, float inverse) {
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
  return sum;
}

// dU and g of a warp's 16 rows.
template <typename E>
__device__ void divide(const Head<E>& head, int row) {
  using Math = HalfMath<E>;
  Memory::Small& small = *head.memory.small;
  const int block = row / 16;
  mix_z(head, block);
  std::uint32_t a[4][4], out[4][4];
  load_rows(a, head.q, row);
  float dot[4] = {0, 0, 0, 0};
#pragma unroll
  for (int c = 0; c < 4; ++c) {
    const auto column = Math::column([&](int j) { return small.mixed_z[block][c * 16 + j]; });
    Math::mma(dot, typename Math::A{{a[c][0], a[c][1], a[c][2], a[c][3]}}, column);
  }
  load_rows(a, head.d_u, row);
  load_rows(out, head.o, row);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float inverse = 1 / (Math::column_sum(dot, half) * head.scale + static_cast<float>(head.p.args.shape.eps));
    float sum = divide_rows<E>(a, out, half, inverse);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if ((head.lane & 3) == 0) small.g[row + half * 8 + head.lane / 4] = sum;
  }
  store_rows(head.d_u, row, a);
}

// ---- queries

// dQ of a warp's 16 rows, before phi and without the scale.
template <typename E>
__device__ void sum_over_keys(float (&d_q)[32], const Head<E>& head, int row) {
  const int lane = head.lane;
  const float weights = lane < head.blocks ? head.weight(row / 16, lane) : 0.0F;
  const float g[2] = {head.p.args.normalize ? head.memory.small->g[row + lane / 4] : 0.0F,
                      head.p.args.normalize ? head.memory.small->g[row + lane / 4 + 8] : 0.0F};
  std::uint32_t a[4][4];
  load_rows(a, head.d_u, row);
  for (int other = 0; other < head.p.tokens; other += 64) {
    float s[32];
    product_fence();
    pin(s);
    multiply_rows<E>(s, a, head.v, other);
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
    multiply_pairs<E>(d_q, pairs, head.k, other, other > 0);
    product_commit();
  }
  product_wait<0>();
  pin(d_q);
}

template <typename E>
__device__ void differentiate_queries(const Head<E>& head, int tile, int row, std::uint32_t signs) {
  const Params<E>& p = head.p;
  float d_q[32];
  sum_over_keys(d_q, head, row);
  keep_where(d_q, signs, head.scale);
  sync_warpgroup(head.group);  // all of the group have read their rows of o
  put_boxes<E>(head.o, p.tokens, row, d_q);
  fence_shared_writes();
  sync_warpgroup(head.group);
  if (head.warp == 0) store_blocks(p.d_q, p.boxes, tile * 4, head.number, head.batch, head.memory.o());
}

// ---- keys

// Pairs of the 16 keys of block b with 64 queries: s = k . q and d_s = v . dU become m s and m (d_s - g). Their part of
// d m goes to device memory. Lane i has m[i, b] in `weights`.
template <typename E>
__device__ void weigh_pairs(float (&s)[32], float (&d_s)[32], const Head<E>& head, int b, int query, float weights) {
  const DenseBackwardArgs<E>& args = head.p.args;
  const int lane = head.lane, blocks = head.blocks;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    float sum = 0;
    const int i = query / kDenseBlock + j;
    const float weight = __shfl_sync(0xffffffffu, weights, i);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
      float2 g = make_float2(0, 0);
      if (args.normalize)
        g = *reinterpret_cast<const float2*>(head.memory.small->g + i * kDenseBlock + t * 8 + (lane & 3) * 2);
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
        args.pair_sums[(static_cast<std::int64_t>(head.item) * blocks + i) * blocks + b] = sum * head.scale;
    }
  }
}

// dK and dV of a warp's 16 rows, before phi and without the scale.
template <typename E>
__device__ void sum_over_queries(float (&d_k)[32], float (&d_v)[32], const Head<E>& head, int tile, int row) {
  const float weights = head.lane < head.blocks ? head.weight(head.lane, row / 16) : 0.0F;
  for (int other = 0; other < head.p.tokens; other += 64) {
    float s[32], d_s[32];
    product_fence();
    pin(s);
    pin(d_s);
    multiply_rows<E>(s, head.k, tile * 64, head.q, other);
    multiply_rows<E>(d_s, head.v, tile * 64, head.d_u, other);
    product_commit();
    product_wait<0>();
    pin(s);
    pin(d_s);
    pin(d_k);
    pin(d_v);
    weigh_pairs(s, d_s, head, row / 16, other, weights);
    std::uint32_t pairs[4][4], d_pairs[4][4];
    round_pairs<E>(pairs, s);
    round_pairs<E>(d_pairs, d_s);
    product_fence();
    multiply_pairs<E>(d_v, pairs, head.d_u, other, other > 0);
    multiply_pairs<E>(d_k, d_pairs, head.q, other, other > 0);
    product_commit();
    product_wait<0>();
    pin(d_v);
    pin(d_k);
  }
  pin(d_k);
  pin(d_v);
}

template <typename E>
__device__ void differentiate_keys(const Head<E>& head, int tile, int row, std::uint32_t signs) {
  const Params<E>& p = head.p;
  float d_k[32], d_v[32];
  sum_over_queries(d_k, d_v, head, tile, row);
  keep_where(d_k, signs, head.scale);
  keep_where(d_v, ~0U, head.scale);
  sync_warpgroup(head.group);  // no product reads the group's rows any more
  put_boxes<E>(head.k, p.tokens, row, d_k);
  put_boxes<E>(head.v, p.tokens, row, d_v);
  fence_shared_writes();
  sync_warpgroup(head.group);
  if (head.warp != 0) return;
  store_blocks(p.d_k, p.boxes, tile * 4, head.number, head.batch, head.memory.k(head.turn));
  store_blocks(p.d_v, p.boxes, tile * 4, head.number, head.batch, head.memory.v());
}

// All gradients of one head, its tensors being there.
template <typename E>
__device__ void differentiate(const Head<E>& head) {
  const DenseBackwardArgs<E>& args = head.p.args;
  std::uint32_t q_signs[kTilesPerGroup], k_signs[kTilesPerGroup];
  head.for_own_tiles([&](int, int row, int n) {
    k_signs[n] = apply_feature(head.k, row, head.feature, head.is_relu);
    q_signs[n] = apply_feature(head.q, row, head.feature, head.is_relu);
    if (args.normalize) {
      __syncwarp();
      sum_keys(head, row);
    }
  });
  fence_shared_writes();
  head.sync();

  if (args.normalize) {
    for (int tile = head.group; tile < head.tiles; tile += head.p.groups) divide(head, tile * 64 + head.warp * 16);
    fence_shared_writes();
    head.sync();
  }

  head.for_own_tiles([&](int tile, int row, int n) { differentiate_queries(head, tile, row, q_signs[n]); });
  head.sync();  // k and v are read no more but by those who hold their rows
  head.for_own_tiles([&](int tile, int row, int n) { differentiate_keys(head, tile, row, k_signs[n]); });
  if (head.warp == 0) wait_stores_read();
  head.sync();
}

template <typename E>
__global__ __launch_bounds__(kMostGroups* kWarpgroup,
                             1) void dense_backward_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  const Memory memory(unaligned, p.tokens);
  const Warp<E> warp(memory, p);
  if (threadIdx.x == 0) memory.prepare();
  __syncthreads();

  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  fetch_keys(memory, p, first, 0);
  fetch_rest(memory, p, first);
  int turn = 0;
  for (int item = first; item < p.items; item += step, ++turn) {
    fetch_keys(memory, p, item + step, turn + 1);
    __syncwarp();
    const Head<E> head(warp, item, turn);
    wait(memory.small->key_full + turn % 2, turn / 2 % 2);
    wait(&memory.small->full, turn % 2);
    differentiate(head);
    fetch_rest(memory, p, item + step);
  }
#endif
}

}  // namespace
}  // namespace dense_gradients

template <typename E>
bool dense_backward(const DenseBackwardArgs<E>& args, cudaStream_t stream) {
  using namespace dense_gradients;
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
         p.groups * kWarpgroup, Memory::bytes(p.tokens), stream, p);
  return true;
}

template bool dense_backward<__nv_bfloat16>(const DenseBackwardArgs<__nv_bfloat16>&, cudaStream_t);
template bool dense_backward<__half>(const DenseBackwardArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
