// One item is a block of a head. Its queries and keys come as a whole, the rest in chunks of 64 columns of values.
// Roles, by warpgroup:
//
//   0, 1, 2  dq, dk, dv
//   3        one thread fetches
//
// Memory is what this kernel waits for, so every warpgroup simply makes its products and waits for them.
#include <algorithm>

#include "cuda/causal/causal_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/ring.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace gradients {

constexpr int kBlock = 64;
constexpr int kConsumers = 3 * kWarpgroup, kThreads = kConsumers + kWarpgroup;
constexpr int kItemStages = 2;

template <typename E>
struct Params {
  CUtensorMap q, k, v, d_o, mixed, dS;
  CausalGradientArgs<E> args;
  Boxes boxes;
  int items;
  int chunks;  // of an item
  float scale, query_factor;
};

template <int kKeyTiles>
struct Memory {
  static constexpr int kChunkStages = kKeyTiles == 1 ? 5 : 3;
  struct Chunk {
    unsigned char d_o[kTileBytes], v[kTileBytes], mixed[kKeyTiles * kTileBytes], dS[kKeyTiles * kTileBytes];
  };
  struct Item {
    unsigned char q[kKeyTiles * kTileBytes], k[kKeyTiles * kTileBytes];
  };
  Chunk chunks[kChunkStages];
  Item items[kItemStages];
  Barrier chunk_full[kChunkStages], chunk_empty[kChunkStages], item_full[kItemStages], item_empty[kItemStages];
  float sums[4];
};

// The items of this thread block, and the chunks of these, as every role comes by them. The last are first: the kernel
// before this one left what it wrote last in the L2 cache.
template <typename E, int kKeyTiles>
class Course {
 public:
  __device__ Course(Memory<kKeyTiles>& memory, const Params<E>& p)
      : p_(p), memory_(memory), number_(p.items - 1 - static_cast<int>(blockIdx.x)) {}

  __device__ explicit operator bool() const { return number_ >= 0; }
  __device__ void next() {
    number_ -= static_cast<int>(gridDim.x);
    item_.next(kItemStages);
  }
  __device__ void next_chunk() { chunk_.next(Memory<kKeyTiles>::kChunkStages); }

  __device__ Shape::Item place() const { return p_.args.shape.item(number_, true); }
  __device__ auto& item() const { return memory_.items[item_.at]; }
  __device__ auto& chunk() const { return memory_.chunks[chunk_.at]; }

  __device__ void wait_for_item() const { wait(memory_.item_full + item_.at, item_.parity); }
  __device__ void wait_for_chunk() const { wait(memory_.chunk_full + chunk_.at, chunk_.parity); }
  __device__ void release_item() const { release(memory_.item_empty + item_.at); }
  __device__ void release_chunk() const { release(memory_.chunk_empty + chunk_.at); }

  // Fetching: waits for room and says how much will come; the barrier to tell when it has.
  __device__ Barrier* begin_item() const {
    return begin(memory_.item_full + item_.at, memory_.item_empty + item_.at, item_.parity, sizeof(item()));
  }
  __device__ Barrier* begin_chunk() const {
    return begin(memory_.chunk_full + chunk_.at, memory_.chunk_empty + chunk_.at, chunk_.parity, sizeof(chunk()));
  }

 private:
  __device__ static void release(Barrier* empty) {
    __syncwarp();
    if (lane_id() == 0) arrive(empty);
  }
  __device__ static Barrier* begin(Barrier* full, Barrier* empty, int parity, std::size_t bytes) {
    wait(empty, parity ^ 1);
    arrive_expecting(full, static_cast<int>(bytes));
    return full;
  }

  const Params<E>& p_;
  Memory<kKeyTiles>& memory_;
  int number_;
  Turn item_, chunk_;
};

template <typename E, int kKeyTiles>
__device__ void fetch(Memory<kKeyTiles>& memory, const Params<E>& p) {
  const Shape& shape = p.args.shape;
  for (Course<E, kKeyTiles> course(memory, p); course; course.next()) {
    const Shape::Item at = course.place();
    const Boxes::Block block = p.boxes.block(at.block);
    const auto load = [&](void* to, const CUtensorMap& map, int tiles, int tile, Barrier* full) {
      load_box(to, map, p.boxes.place(block, 0, (at.head * tiles + tile) * kBoxColumns, at.s.batch), full);
    };
    Barrier* full = course.begin_item();
    for (int n = 0; n < kKeyTiles; ++n) {
      load(course.item().q + n * kTileBytes, p.q, kKeyTiles, n, full);
      load(course.item().k + n * kTileBytes, p.k, kKeyTiles, n, full);
    }
    const int row = static_cast<int>(shape.mixed_row(at.s, at.head, at.block)) * shape.key_dim;
    for (int c = 0; c < p.chunks; ++c, course.next_chunk()) {
      full = course.begin_chunk();
      load(course.chunk().d_o, p.d_o, p.chunks, c, full);
      load(course.chunk().v, p.v, p.chunks, c, full);
      load_matrix_box(course.chunk().mixed, p.mixed, c * kBoxColumns, row, full);
      load_matrix_box(course.chunk().dS, p.dS, c * kBoxColumns, row, full);
    }
  }
}

// Whether element n of a thread's part of a 64 x 64 product of tokens counts. A query (row) sees keys up to its own;
// seen from a key, queries from its own on.
template <bool kOfQueries>
__device__ bool sees(int warp, int n) {
  const int row = warp * 16 + (lane_id() >> 2) + n / 2 % 2 * 8, column = n / 4 * 8 + (lane_id() & 3) * 2 + n % 2;
  return kOfQueries ? column <= row : column >= row;
}
// Such products, weighted, as A of another product.
template <bool kOfQueries, typename E>
__device__ void weigh(std::uint32_t (&pairs)[4][4], const float (&products)[32], float weight, int warp) {
  const auto value = [&](int n) { return sees<kOfQueries>(warp, n) ? products[n] * weight : 0.0F; };
#pragma unroll
  for (int n = 0; n < 32; n += 2) pairs[n / 8][n / 2 % 4] = pack<E>(value(n), value(n + 1));
}

template <typename E>
__device__ float own_weight(const Params<E>& p, const Shape::Item& at) {
  const Shape& shape = p.args.shape;
  return p.scale * shape.template weight<float>(shape.matrix(at.s.index, at.head), at.block, at.block);
}

// d m[b, b], by the warpgroup of dq, out of its products dO V^T.
template <typename E, int kKeyTiles>
__device__ void sum_diagonal(Memory<kKeyTiles>& memory, const Params<E>& p, const Course<E, kKeyTiles>& course,
                             const Shape::Item& at, const float (&d_pairs)[32], int warp) {
  float pairs[32];
  product_fence();
  pin(pairs);
#pragma unroll
  for (int k = 0; k < kKeyTiles * 4; ++k) {
    const auto column = static_cast<std::uint32_t>(k / 4 * kTileBytes + k % 4 * 32);
    warpgroup_product<E, false, false>(pairs, product_operand(shared_address(course.item().q) + column, 16),
                                       product_operand(shared_address(course.item().k) + column, 16), k > 0);
  }
  product_commit();
  product_wait<0>();
  pin(pairs);
  float sum = 0;
#pragma unroll
  for (int n = 0; n < 32; ++n)
    if (sees<true>(warp, n)) sum += pairs[n] * d_pairs[n];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (lane_id() == 0) memory.sums[warp] = sum;
  sync_warpgroup(0);
  if (warp == 0 && lane_id() < p.args.diagonal_stride) {
    const float* const sums = memory.sums;
    float* const to = p.args.diagonal + p.args.shape.mixed_row(at.s, at.head, at.block) * p.args.diagonal_stride;
    to[lane_id()] = lane_id() == 0 ? p.scale * (sums[0] + sums[1] + (sums[2] + sums[3])) : 0.0F;
  }
  sync_warpgroup(0);  // before the sums of the next item
}

// dq; or dk, which is the same with dO and V, S~ and dS, and Q and K exchanged.
template <bool kOfQueries, typename E, int kKeyTiles>
__device__ void differentiate_queries_or_keys(Memory<kKeyTiles>& memory, const Params<E>& p) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  for (Course<E, kKeyTiles> course(memory, p); course; course.next()) {
    const Shape::Item at = course.place();
    const float weight = own_weight(p, at);
    float out[kKeyTiles * 32], products[32];
    for (int c = 0; c < p.chunks; ++c, course.next_chunk()) {
      course.wait_for_chunk();
      const auto& chunk = course.chunk();
      const std::uint32_t x = shared_address(kOfQueries ? chunk.d_o : chunk.v);
      const std::uint32_t y = shared_address(kOfQueries ? chunk.v : chunk.d_o);
      const std::uint32_t W = shared_address(kOfQueries ? chunk.mixed : chunk.dS);
      std::uint32_t rows[4][4];
#pragma unroll
      for (int k = 0; k < 4; ++k) load_rows(rows[k], x, warp, k);
      product_fence();
      pin(out);
      pin(products);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const auto column = static_cast<std::uint32_t>(k * 32);
        warpgroup_product<E, false>(out, rows[k], product_operand(W + column, 16), c > 0 || k > 0);
        warpgroup_product<E, false>(products, rows[k], product_operand(y + column, 16), c > 0 || k > 0);
      }
      product_commit();
      product_wait<0>();
      pin(out);
      pin(products);
      course.release_chunk();
    }
    course.wait_for_item();
    if constexpr (kOfQueries) {
      if (p.args.diagonal != nullptr) sum_diagonal(memory, p, course, at, products, warp);
#pragma unroll
      for (float& x : out) x *= p.query_factor;
    }
    std::uint32_t pairs[4][4];
    weigh<kOfQueries, E>(pairs, products, weight, warp);
    const std::uint32_t rest = shared_address(kOfQueries ? course.item().k : course.item().q);
    product_fence();
    pin(out);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      warpgroup_product<E, true>(
          out, pairs[k], product_operand(rest + static_cast<std::uint32_t>(k * 16 * kBoxRowBytes), kTileBytes), true);
    product_commit();
    product_wait<0>();
    pin(out);
    course.release_item();
    const TokenTensor<E>& to = kOfQueries ? p.args.d_q : p.args.d_k;
    put_rows(to.head(at.s.batch, at.head), at.block * kBlock + warp * 16, 0, out);
  }
}

template <typename E, int kKeyTiles>
__device__ void differentiate_values(Memory<kKeyTiles>& memory, const Params<E>& p) {
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  for (Course<E, kKeyTiles> course(memory, p); course; course.next()) {
    const Shape::Item at = course.place();
    const float weight = own_weight(p, at);
    std::uint32_t rows[kKeyTiles * 4][4], pairs[4][4];
    float acc[32];
    course.wait_for_item();
#pragma unroll
    for (int k = 0; k < kKeyTiles * 4; ++k)
      load_rows(rows[k], shared_address(course.item().k + k / 4 * kTileBytes), warp, k % 4);
    product_fence();
    pin(acc);
#pragma unroll
    for (int k = 0; k < kKeyTiles * 4; ++k)
      warpgroup_product<E, false>(
          acc, rows[k],
          product_operand(shared_address(course.item().q) + static_cast<std::uint32_t>(k / 4 * kTileBytes + k % 4 * 32),
                          16),
          k > 0);
    product_commit();
    product_wait<0>();
    pin(acc);
    course.release_item();
    weigh<false, E>(pairs, acc, weight, warp);
    for (int c = 0; c < p.chunks; ++c, course.next_chunk()) {
      course.wait_for_chunk();
      product_fence();
      pin(acc);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        warpgroup_product<E, true>(
            acc, pairs[k],
            product_operand(shared_address(course.chunk().d_o) + static_cast<std::uint32_t>(k * 16 * kBoxRowBytes), 16),
            k > 0);
#pragma unroll
      for (int k = 0; k < kKeyTiles * 4; ++k)
        warpgroup_product<E, true>(
            acc, rows[k],
            product_operand(shared_address(course.chunk().dS) + static_cast<std::uint32_t>(k * 16 * kBoxRowBytes), 16),
            true);
      product_commit();
      product_wait<0>();
      pin(acc);
      course.release_chunk();
      put_rows(p.args.d_v.head(at.s.batch, at.head), at.block * kBlock + warp * 16, c * kBoxColumns, acc);
    }
  }
}

template <typename E, int kKeyTiles>
__global__ __launch_bounds__(kThreads, 1) void causal_gradients_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ __align__(1024) unsigned char bytes[];
  auto& memory = *reinterpret_cast<Memory<kKeyTiles>*>(bytes);
  if (threadIdx.x == 0) {
    constexpr int kWarps = kConsumers / 32;
    for (int n = 0; n < Memory<kKeyTiles>::kChunkStages; ++n) {
      init_barrier(memory.chunk_full + n, 1);
      init_barrier(memory.chunk_empty + n, kWarps);
    }
    for (int n = 0; n < kItemStages; ++n) {
      init_barrier(memory.item_full + n, 1);
      init_barrier(memory.item_empty + n, kWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int group = warpgroup_id();
  if (group == 3) {
    give_registers<32>();
    if (threadIdx.x == kConsumers) fetch(memory, p);
    return;
  }
  if (group == 0) {
    take_registers<184>();
    differentiate_queries_or_keys<true>(memory, p);
  } else if (group == 1) {
    take_registers<176>();
    differentiate_queries_or_keys<false>(memory, p);
  } else {
    give_registers<120>();
    differentiate_values(memory, p);
  }
#endif
}

template <typename E>
bool suits(const CausalGradientArgs<E>& args, Boxes& boxes) {
  const Shape& shape = args.shape;
  const int heads = shape.heads;
  return shape.masking == Masking::token_causal && is_plain(shape.feature) && heads == shape.kv_heads &&
         shape.initial == 0 && shape.capacity == kBlock && shape.uniform.tokens % kBlock == 0 &&
         (shape.key_dim == 64 || shape.key_dim == 128) && shape.value_dim % kBoxColumns == 0 &&
         static_cast<std::int64_t>(shape.total_blocks) * heads * shape.key_dim < (std::int64_t{1} << 31) &&
         args.diagonal_stride <= 32 && fits(args.q, heads) && fits(args.k, heads) && fits(args.v, heads) &&
         fits(args.d_o, heads) && fits(args.d_q, heads) && fits(args.d_k, heads) && fits(args.d_v, heads) &&
         available() && find_boxes(shape, boxes) && boxes.rows == kBlock;
}

template <typename E, int kKeyTiles>
void run(const Params<E>& p, cudaStream_t stream) {
  launch("causal gradients", causal_gradients_kernel<E, kKeyTiles>,
         dim3(static_cast<unsigned>(std::min(p.items, multiprocessors()))), kThreads, sizeof(Memory<kKeyTiles>), stream,
         p);
}

}  // namespace gradients

template <typename E>
bool causal_gradients(const CausalGradientArgs<E>& args, cudaStream_t stream) {
  gradients::Params<E> p{};
  p.args = args;
  if (!gradients::suits(args, p.boxes)) return false;
  const Shape& shape = args.shape;
  const auto map = [&](const auto& x) { return token_map(x, shape.heads, shape.sequences, p.boxes); };
  const auto matrices = [&](const E* x) {
    return matrix_map(x, static_cast<std::int64_t>(shape.total_blocks) * shape.heads * shape.key_dim, shape.value_dim,
                      shape.key_dim);
  };
  p.q = map(args.q), p.k = map(args.k), p.v = map(args.v), p.d_o = map(args.d_o);
  p.mixed = matrices(args.mixed), p.dS = matrices(args.dS);
  p.items = shape.total_blocks * shape.heads;
  p.chunks = shape.value_dim / kBoxColumns;
  p.scale = static_cast<float>(shape.scale);
  p.query_factor = static_cast<float>(args.query_factor);
  shape.key_dim == kBoxColumns ? gradients::run<E, 1>(p, stream) : gradients::run<E, 2>(p, stream);
  return true;
}

template bool causal_gradients<__nv_bfloat16>(const CausalGradientArgs<__nv_bfloat16>&, cudaStream_t);
template bool causal_gradients<__half>(const CausalGradientArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
