// The readout of token-causal blocks of 64 tokens, with the pairs inside them. One to four warpgroups take an item (a
// block of a head) together, 64 columns of the result each; each forms all pairs for itself, which costs less than
// waiting for another. One more warpgroup fetches tiles ahead, across items:
//
//   x | y | rest, W of the first 64 columns | ... of the next | x of the next item ...
//
// A result leaves through the place of its rest tile.
#include <algorithm>

#include "cuda/readout/readout_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/ring.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {

// Numbers of an item's tiles.
struct ItemTiles {
  int depth, width;  // tiles of a row of x; slices
  unsigned first;

  __device__ unsigned x(int c) const { return first + static_cast<unsigned>(c); }
  __device__ unsigned y(int c) const { return first + static_cast<unsigned>(depth + c); }
  __device__ unsigned rest(int slice) const { return first + static_cast<unsigned>(2 * depth + slice * (1 + depth)); }
  __device__ unsigned W(int slice, int c) const { return rest(slice) + static_cast<unsigned>(1 + c); }
  __host__ __device__ int count() const { return 2 * depth + width * (1 + depth); }
  // From the last tile of the first slice to the next item of the same warpgroup: what wait_in_turn() must tell apart.
  __host__ __device__ int widest_gap(int items_at_once) const { return items_at_once * count() - 3 * depth; }
};

namespace {

constexpr int kGroups = 4, kConsumers = kGroups * kWarpgroup, kThreads = kConsumers + kWarpgroup;
constexpr int kBlock = 64;  // tokens and columns of a tile
using Tiles = Ring<27>;

template <typename E>
struct Params {
  CUtensorMap x, y, rest, W, out;
  ReadoutArgs<E> args;
  Boxes boxes;
  int items;
  int depth, width;  // of W as it is read, in tiles
  int together;      // warpgroups of an item
};

constexpr int kSharedBytes = Tiles::kBytes + static_cast<int>(sizeof(Tiles::Barriers)) + 1024;  // the last: alignment

template <typename E>
__global__ __launch_bounds__(kThreads, 1) void causal_readout_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ unsigned char unaligned[];
  Tiles ring;
  ring.tiles = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  ring.barriers = reinterpret_cast<Tiles::Barriers*>(ring.tiles + Tiles::kBytes);
  const ReadoutArgs<E>& args = p.args;
  const Shape& shape = args.shape;
  if (threadIdx.x == 0) ring.prepare(4 * p.together);
  __syncthreads();

  ItemTiles tiles{p.depth, p.width, 0};
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  const auto matrix_row = [&](const Shape::Item& item) {
    return args.of_queries ? shape.mixed_row(item.s, item.head, item.block)
                           : shape.entry_row(item.s, item.head, item.block);
  };

  if (threadIdx.x >= kConsumers) {
    give_registers<32>();
    if (threadIdx.x != kConsumers) return;
    for (int number = first; number < p.items; number += step, tiles.first += static_cast<unsigned>(tiles.count())) {
      const Shape::Item item = shape.item(number, args.of_queries);
      const auto fetch = [&](unsigned n, const CUtensorMap& map, int columns, int c) {
        const BoxPlace at =
            p.boxes.place(p.boxes.block(item.block), 0, (item.head * columns + c) * kBlock, item.s.batch);
        ring.fetch(n, [&](void* to, Barrier* full) { load_box(to, map, at, full); });
      };
      for (int c = 0; c < p.depth; ++c) fetch(tiles.x(c), p.x, p.depth, c);
      for (int c = 0; c < p.depth; ++c) fetch(tiles.y(c), p.y, p.depth, c);
      const int row = static_cast<int>(matrix_row(item)) * shape.key_dim;
      for (int slice = 0; slice < p.width; ++slice) {
        fetch(tiles.rest(slice), p.rest, p.width, slice);
        for (int c = 0; c < p.depth; ++c)
          ring.fetch(tiles.W(slice, c), [&](void* to, Barrier* full) {
            load_matrix_box(to, p.W, slice * kBlock, row + c * kBlock, full);
          });
      }
    }
    return;
  }

  take_registers<112>();
  const int group = warpgroup_id(), warp = static_cast<int>(threadIdx.x) / 32 % 4, lane = lane_id();
  const int slice = group % p.together;
  const auto factor = static_cast<float>(args.factor);
  const auto pair_factor = static_cast<float>(args.pair_factor);
  int turn = 0;
  for (int number = first; number < p.items;
       number += step, ++turn, tiles.first += static_cast<unsigned>(tiles.count())) {
    if (turn % (kGroups / p.together) != group / p.together) continue;
    const Shape::Item item = shape.item(number, args.of_queries);
    const float own_weight = shape.weight<float>(shape.matrix(item.s.index, item.head), item.block, item.block);

    float acc[32];
    for (int c = 0; c < p.depth; ++c) ring.wait_for(tiles.x(c));
    for (int c = 0; c < p.depth; ++c) {
      ring.wait_for(tiles.y(c));
      product_fence();
      pin(acc);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        warpgroup_product<E, false, false>(
            acc, product_operand(ring.address(tiles.x(c)) + static_cast<std::uint32_t>(k * 32), 16),
            product_operand(ring.address(tiles.y(c)) + static_cast<std::uint32_t>(k * 32), 16), c > 0 || k > 0);
      product_commit();
    }
    product_wait<0>();
    pin(acc);
    for (int c = 0; c < p.depth; ++c) ring.release(tiles.y(c));
    // A query sees keys up to its own; seen from a key, queries from its own on.
    std::uint32_t pairs[4][4];
#pragma unroll
    for (int j = 0; j < 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; e += 2) {
        const int row = warp * 16 + (lane >> 2) + e / 2 * 8, column = j * 8 + (lane & 3) * 2;
        const bool low = args.of_queries ? column <= row : column >= row;
        const bool high = args.of_queries ? column + 1 <= row : column + 1 >= row;
        pairs[j / 2][j % 2 * 2 + e / 2] =
            pack<E>(low ? acc[j * 4 + e] * pair_factor : 0.0F, high ? acc[j * 4 + e + 1] * pair_factor : 0.0F);
      }

    const unsigned rest = tiles.rest(slice);
    ring.wait_for(rest);
    product_fence();
    pin(acc);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      warpgroup_product<E, true>(
          acc, pairs[k], product_operand(ring.address(rest) + static_cast<std::uint32_t>(k * 16 * kBoxRowBytes), 16),
          k > 0);
    product_commit();
    product_wait<0>();
    pin(acc);
#pragma unroll
    for (float& value : acc) value *= own_weight;
    for (int c = 0; c < p.depth; ++c) {
      const unsigned W = tiles.W(slice, c);
      ring.wait_for(W);
      product_fence();
      pin(acc);
#pragma unroll
      for (int k = 0; k < 4; ++k)
        warpgroup_product<E, false, true>(
            acc, product_operand(ring.address(tiles.x(c)) + static_cast<std::uint32_t>(k * 32), 16),
            product_operand(ring.address(W) + static_cast<std::uint32_t>(k * 16 * kBoxRowBytes), 16), true);
      product_commit();
    }
    product_wait<0>();
    pin(acc);
    for (int c = 0; c < p.depth; ++c) {
      ring.release(tiles.W(slice, c), p.together);
      ring.release(tiles.x(c));
    }
#pragma unroll
    for (float& value : acc) value *= factor;
    sync_warpgroup(group);  // the rest tile has been read by all
    put_boxes<E>(ring.address(rest), kBlock, warp * 16, acc);
    fence_shared_writes();
    sync_warpgroup(group);
    if (warp == 0 && lane == 0) {
      store_box(p.out,
                p.boxes.place(p.boxes.block(item.block), 0, (item.head * p.width + slice) * kBlock, item.s.batch),
                ring.tile(rest));
      commit_stores();
      wait_stores_read();
    }
    ring.release(rest, p.together);
  }
#endif
}

template <typename E>
bool suits(const ReadoutArgs<E>& args, Boxes& boxes) {
  const Shape& shape = args.shape;
  const int heads = shape.heads;
  const auto whole = [](int dim) { return dim == 64 || dim == 128 || dim == 256; };
  const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads * shape.key_dim;
  return args.y && !args.transposed && !args.g && args.z == nullptr && !args.denominator && args.vector == nullptr &&
         !args.raw && is_plain(args.x_feature) && is_plain(args.y_feature) && is_plain(args.rest_feature) &&
         shape.masking == Masking::token_causal && heads == shape.kv_heads && shape.initial == 0 &&
         shape.capacity == kBlock && shape.uniform.tokens % kBlock == 0 && whole(shape.key_dim) &&
         whole(shape.value_dim) && rows < (std::int64_t{1} << 31) && fits(args.x, heads) && fits(args.y, heads) &&
         fits(args.rest, heads) && fits(args.out, heads) && available() && find_boxes(shape, boxes) &&
         boxes.rows == kBlock;
}

}  // namespace

template <typename E>
bool read_out_causal(const ReadoutArgs<E>& args, cudaStream_t stream) {
  Params<E> p{};
  p.args = args;
  if (!suits(args, p.boxes)) return false;
  const Shape& shape = args.shape;
  const auto map = [&](const auto& x) { return token_map(x, shape.heads, shape.sequences, p.boxes); };
  p.x = map(args.x), p.y = map(args.y), p.rest = map(args.rest), p.out = map(args.out);
  p.W = matrix_map(args.W, static_cast<std::int64_t>(shape.total_blocks) * shape.heads * shape.key_dim, shape.value_dim,
                   kBlock);
  p.items = shape.total_blocks * shape.heads;
  p.depth = shape.key_dim / kBlock;
  p.width = shape.value_dim / kBlock;
  p.together = std::min(p.width, kGroups);
  const ItemTiles tiles{p.depth, p.width, 0};
  if (tiles.count() > Tiles::kCount || tiles.widest_gap(kGroups / p.together) > Tiles::kCount) return false;
  const dim3 grid(static_cast<unsigned>(std::min(p.items, multiprocessors())));
  launch("causal readout", causal_readout_kernel<E>, grid, kThreads, kSharedBytes, stream, p);
  return true;
}

template bool read_out_causal<__nv_bfloat16>(const ReadoutArgs<__nv_bfloat16>&, cudaStream_t);
template bool read_out_causal<__half>(const ReadoutArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
