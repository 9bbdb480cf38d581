// Four warpgroups take turns at tiles of tokens and multiply them with the matrix of their block; one more fetches
// matrices and tiles ahead, across blocks. A result leaves through the place its tile came in. One thread block per
// multiprocessor stays and takes every gridDim-th (block, head).
#include "cuda/readout/readout_sm90.hpp"
#include "cuda/support/hopper/fragments.cuh"
#include "cuda/support/hopper/tensor_map.hpp"
#include "cuda/support/launch.hpp"

namespace mhla::cuda::hopper {
namespace {

constexpr int kGroups = 4;
constexpr int kThreads = (kGroups + 1) * kWarpgroup;
constexpr int kMostStages = 8, kMostMatrices = 8;
constexpr int kNumberWarps = 2;

template <typename E>
struct Params {
  CUtensorMap x, raw, W, out, second;
  ReadoutArgs<E> args;
  Feature second_feature;
  float second_factor;
  Boxes boxes;
  int items, stages, matrices, producers;
};

template <typename E>
__host__ __device__ bool needs_raw(const ReadoutArgs<E>& args, bool both) {
  return both || (static_cast<bool>(args.raw) && args.raw_feature.map == FeatureMap::relu);
}

// Shared memory: matrices, stages of x (later the result) and raw, then what is small.
template <int kDepth, int kWidth>
struct Layout {
  static constexpr int kMatrixBytes = kDepth * kWidth * 2;
  static constexpr int kTileBoxes = (kDepth > kWidth ? kDepth : kWidth) / kBoxColumns;
  struct Small {
    float vectors[kMostMatrices][128];
    float coefficients[kMostStages][kTileRows];
    Barrier full[kMostStages], empty[kMostStages], matrix_full[kMostMatrices], matrix_empty[kMostMatrices];
  };
  static constexpr int kFixedBytes = static_cast<int>(sizeof(Small)) + 1024;  // the last: alignment
  static int stage_bytes(const Boxes& boxes, bool with_raw) {
    return (kTileBoxes + (with_raw ? kWidth / kBoxColumns : 0)) * boxes.padded_rows * kBoxRowBytes;
  }
};

// kBoth: a second result, phi(raw) W, from what is here already. So dk (x = v, raw = k, W^T) brings dv with it.
template <typename E, int kDepth, int kWidth, bool kTransposed, bool kBoth>
__global__ __launch_bounds__(kThreads, 1) void readout_kernel(const __grid_constant__ Params<E> p) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using Sizes = Layout<kDepth, kWidth>;
  using Math = HalfMath<E>;
  constexpr int kDepthBoxes = kDepth / kBoxColumns, kWidthBoxes = kWidth / kBoxColumns;
  constexpr int kKeys = kTransposed ? kWidth : kDepth;  // rows of W in memory
  constexpr int kMatrixBoxes = kTransposed ? kDepthBoxes : kWidthBoxes;
  extern __shared__ unsigned char unaligned[];
  unsigned char* const shared = unaligned + (1024 - shared_address(unaligned) % 1024) % 1024;
  const ReadoutArgs<E>& args = p.args;
  const Shape& shape = args.shape;
  const Boxes& boxes = p.boxes;
  const bool with_raw = needs_raw(args, kBoth);
  const float* const block_vector = args.z != nullptr ? args.z : args.vector;
  const int box_bytes = boxes.padded_rows * kBoxRowBytes;
  const int stage_boxes = kDepthBoxes + (with_raw ? kWidthBoxes : 0);  // fetched
  const int stage_bytes = (Sizes::kTileBoxes + (with_raw ? kWidthBoxes : 0)) * box_bytes;
  unsigned char* const stages = shared + p.matrices * Sizes::kMatrixBytes;
  auto& small = *reinterpret_cast<typename Sizes::Small*>(stages + p.stages * stage_bytes);
  const int lane = lane_id(), group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;

  if (threadIdx.x == 0) {
    for (int s = 0; s < p.stages; ++s) {
      init_barrier(small.full + s, args.coefficient ? 33 : 1);
      init_barrier(small.empty + s, 1);
    }
    for (int m = 0; m < p.matrices; ++m) {
      init_barrier(small.matrix_full + m, 1);
      init_barrier(small.matrix_empty + m, kGroups * 4);
    }
    fence_barrier_init();
  }
  __syncthreads();

  struct Work {
    int head, block, batch;
    std::int64_t row;
  };
  const auto work = [&](int item) -> Work {
    const auto [s, head, block] = shape.item(item, args.of_queries);
    return {head, block, s.batch,
            args.of_queries ? shape.mixed_row(s, head, block) : shape.entry_row(s, head, shape.initial + block)};
  };
  const int first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);
  Turn turn, matrix;

  if (group == kGroups) {
    give_registers<32>();
    // With one tile per item, four warps take turns at items; else the first fetches all, and two more take turns at
    // the numbers of its tiles. Where a tile goes follows from how many came before it. A warp must not be two rounds
    // of a ring ahead of another, so the places of a ring are a multiple of the warps that take turns at it.
    const bool takes_turns = p.producers > 1, fetches = takes_turns || warp == 0;
    const bool numbers = args.coefficient && (takes_turns || (warp > 0 && warp <= kNumberWarps));
    if (!fetches && !numbers) return;
    const int initial = takes_turns ? warp : 0;
    for (int item = first + initial * step, number = initial; item < p.items;
         item += p.producers * step, number += p.producers) {
      const Work w = work(item);
      const Boxes::Block block = boxes.block(w.block);
      const int matrix_use = number / p.matrices, matrix_at = number - matrix_use * p.matrices;
      if (fetches && lane == 0) {
        Barrier* const barrier = small.matrix_full + matrix_at;
        wait(small.matrix_empty + matrix_at, matrix_use % 2 ^ 1);
        const int vector_bytes = block_vector != nullptr ? kKeys * 4 : 0;
        arrive_expecting(barrier, Sizes::kMatrixBytes + vector_bytes);
#pragma unroll
        for (int b = 0; b < kMatrixBoxes; ++b)
          load_matrix_box(shared + matrix_at * Sizes::kMatrixBytes + b * kKeys * kBoxRowBytes, p.W, b * kBoxColumns,
                          static_cast<int>(w.row) * kKeys, barrier);
        if (block_vector != nullptr)
          load_line(small.vectors[matrix_at], block_vector + w.row * kKeys, vector_bytes, barrier);
      }
      __syncwarp();
      for (int tile = 0; tile < boxes.tiles; ++tile) {
        const int sequence = number * boxes.tiles + tile, use = sequence / p.stages, stage = sequence - use * p.stages;
        if (!fetches && sequence % kNumberWarps != warp - 1) continue;
        Barrier* const barrier = small.full + stage;
        wait(small.empty + stage, use % 2 ^ 1);
        if (numbers) {
          for (int r = lane; r < boxes.padded_rows; r += 32) {
            const std::int64_t token = boxes.token(block, tile, r);
            copy_number(small.coefficients[stage] + r,
                        &args.coefficient.at(w.batch, max(token, std::int64_t{0}), w.head), token >= 0);
          }
          arrive_after_copies(barrier);
        }
        if (!fetches) continue;
        if (lane == 0) arrive_expecting(barrier, stage_boxes * boxes.joined * boxes.rows * kBoxRowBytes);
        __syncwarp();
        // One copy per lane: box `part`, 64 columns of x or raw.
        const int part = lane / stage_boxes, b = lane % stage_boxes;
        if (part < boxes.joined) {
          const bool of_x = b < kDepthBoxes;
          const int column =
              of_x ? w.head * kDepth + b * kBoxColumns : w.head * kWidth + (b - kDepthBoxes) * kBoxColumns;
          const int at = of_x ? b : b - kDepthBoxes + Sizes::kTileBoxes;
          load_box(stages + stage * stage_bytes + at * box_bytes + part * boxes.rows * kBoxRowBytes, of_x ? p.x : p.raw,
                   boxes.place(block, tile * boxes.joined + part, column, w.batch), barrier);
        }
      }
    }
    return;
  } else {
    take_registers<112>();
    const PairFeature<E> feature(args.x_feature);
    const int row = min(warp * 16, boxes.padded_rows - 16);  // rows past the tile are computed and dropped
    const int column = (lane & 3) * 2;
    int next = group;  // tiles until the next one of this group
    for (int item = first; item < p.items; item += step, matrix.next(p.matrices)) {
      wait(small.matrix_full + matrix.at, matrix.parity);
      const float* const vector = small.vectors[matrix.at];
      const std::uint32_t W = shared_address(shared) + static_cast<std::uint32_t>(matrix.at * Sizes::kMatrixBytes);
      typename Math::B z[kDepth / 16];
      if (!kTransposed && args.z != nullptr && next < boxes.tiles) {
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) z[k] = Math::column([&](int j) { return vector[k * 16 + j]; });
      }
      for (int tile = 0; tile < boxes.tiles; ++tile, turn.next(p.stages)) {
        if (next-- > 0) continue;
        next = kGroups - 1;
        wait_in_turn(small.full + turn.at, small.empty + turn.at, turn.parity);
        const std::uint32_t x = shared_address(stages) + static_cast<std::uint32_t>(turn.at * stage_bytes);
        const std::uint32_t raw = x + static_cast<std::uint32_t>(Sizes::kTileBoxes * box_bytes);
        std::uint32_t a[kDepth / 16][4];
#pragma unroll
        for (int k = 0; k < kDepth / 16; ++k) {
          load_matrices<false>(a[k], box_piece(x + static_cast<std::uint32_t>(k / 4 * box_bytes), row + (lane & 15),
                                               k % 4 * 2 + (lane >> 4)));
          feature.apply(a[k]);
        }
        float factor[2] = {static_cast<float>(args.factor), static_cast<float>(args.factor)};
        if (!kTransposed && args.z != nullptr) {
          float dot[4] = {0, 0, 0, 0};
#pragma unroll
          for (int k = 0; k < kDepth / 16; ++k)
            Math::mma(dot, typename Math::A{{a[k][0], a[k][1], a[k][2], a[k][3]}}, z[k]);
#pragma unroll
          for (int half = 0; half < 2; ++half)
            factor[half] /=
                Math::column_sum(dot, half) * static_cast<float>(shape.scale) + static_cast<float>(shape.eps);
        }
        float coefficient[2] = {static_cast<float>(args.rank_one_factor), static_cast<float>(args.rank_one_factor)};
        if (args.coefficient) {
          coefficient[0] *= small.coefficients[turn.at][row + (lane >> 2)];
          coefficient[1] *= small.coefficients[turn.at][row + (lane >> 2) + 8];
        }
        sync_warpgroup(group);  // x is in registers, its place is free

#pragma unroll
        for (int h = 0; h < kWidthBoxes; ++h) {
          float acc[32];
          product_fence();
          pin(acc);
#pragma unroll
          for (int k = 0; k < kDepth / 16; ++k) {
            const int at = kTransposed ? k / 4 * kKeys * kBoxRowBytes + h * kBoxColumns * kBoxRowBytes + k % 4 * 32
                                       : h * kKeys * kBoxRowBytes + k * 16 * kBoxRowBytes;
            warpgroup_product<E, !kTransposed>(acc, a[k], product_operand(W + static_cast<std::uint32_t>(at), 16),
                                               k > 0);
          }
          product_commit();
          product_wait<0>();
          pin(acc);
#pragma unroll
          for (int j = 0; j < 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) acc[j * 4 + e] *= factor[e / 2];
          if (args.vector != nullptr) {
#pragma unroll
            for (int j = 0; j < 8; ++j) {
              const float2 v = *reinterpret_cast<const float2*>(vector + h * kBoxColumns + j * 8 + column);
#pragma unroll
              for (int e = 0; e < 4; ++e) acc[j * 4 + e] += coefficient[e / 2] * (e % 2 == 0 ? v.x : v.y);
            }
          }
          if (args.raw_feature.map == FeatureMap::relu && with_raw) {
            // Read like the A of a product: element by element the same places as the accumulators.
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              std::uint32_t fragment[4];
              load_matrices<false>(fragment, box_piece(raw + static_cast<std::uint32_t>(h * box_bytes),
                                                       row + (lane & 15), k * 2 + (lane >> 4)));
#pragma unroll
              for (int n = 0; n < 8; ++n)
                if (!(to_accumulator(reinterpret_cast<const E(&)[2]>(fragment[n / 2])[n % 2]) > 0)) acc[k * 8 + n] = 0;
            }
          }
          if (row == warp * 16)
            put_boxes<E>(x + static_cast<std::uint32_t>(h * box_bytes), boxes.padded_rows, row, acc);
        }
        if constexpr (kBoth) {
          const PairFeature<E> second_feature(p.second_feature);
#pragma unroll
          for (int k = 0; k < kWidth / 16; ++k) {
            load_matrices<false>(a[k], box_piece(raw + static_cast<std::uint32_t>(k / 4 * box_bytes), row + (lane & 15),
                                                 k % 4 * 2 + (lane >> 4)));
            second_feature.apply(a[k]);
          }
          sync_warpgroup(group);
#pragma unroll
          for (int h = 0; h < kDepthBoxes; ++h) {
            float acc[32];
            product_fence();
            pin(acc);
#pragma unroll
            for (int k = 0; k < kWidth / 16; ++k)
              warpgroup_product<E, true>(
                  acc, a[k], product_operand(W + static_cast<std::uint32_t>((h * kKeys + k * 16) * kBoxRowBytes), 16),
                  k > 0);
            product_commit();
            product_wait<0>();
            pin(acc);
#pragma unroll
            for (float& value : acc) value *= p.second_factor;
            if (row == warp * 16)
              put_boxes<E>(raw + static_cast<std::uint32_t>(h * box_bytes), boxes.padded_rows, row, acc);
          }
        }
        fence_shared_writes();
        sync_warpgroup(group);
        if (warp == 0) {
          const Work w = work(item);
          const int part = lane / kWidthBoxes, b = lane % kWidthBoxes, box = tile * boxes.joined + part;
          if (part < boxes.joined && box < boxes.per_block) {
            store_box(p.out, boxes.place(boxes.block(w.block), box, w.head * kWidth + b * kBoxColumns, w.batch),
                      stages + turn.at * stage_bytes + b * box_bytes + part * boxes.rows * kBoxRowBytes);
            if constexpr (kBoth)
              store_box(p.second, boxes.place(boxes.block(w.block), box, w.head * kWidth + b * kBoxColumns, w.batch),
                        stages + turn.at * stage_bytes + (Sizes::kTileBoxes + b) * box_bytes +
                            part * boxes.rows * kBoxRowBytes);
            commit_stores();
          }
          wait_stores_read();
          __syncwarp();
          if (lane == 0) arrive(small.empty + turn.at);
        }
      }
      __syncwarp();
      if (lane == 0) arrive(small.matrix_empty + matrix.at);
    }
  }
#endif
}

template <typename E, int kDepth, int kWidth, bool kTransposed, bool kBoth = false>
void launch_readout(Params<E>& p, cudaStream_t stream) {
  using Sizes = Layout<kDepth, kWidth>;
  const ReadoutArgs<E>& args = p.args;
  const Shape& shape = args.shape;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const bool with_raw = needs_raw(args, kBoth);
  const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads;
  p.x = token_map(args.x, heads, shape.sequences, p.boxes);
  p.out = token_map(args.out, heads, shape.sequences, p.boxes);
  p.raw = with_raw ? token_map(args.raw, heads, shape.sequences, p.boxes) : p.x;
  p.W = matrix_map(args.W, rows * shape.key_dim, shape.value_dim, shape.key_dim);
  p.items = shape.total_blocks * heads;
  const int stage = Sizes::stage_bytes(p.boxes, with_raw);
  p.matrices = stages_that_fit(1, Sizes::kFixedBytes + (kGroups + 1) * stage, Sizes::kMatrixBytes,
                               p.boxes.tiles < kGroups ? kMostMatrices : 2);
  p.stages = stages_that_fit(1, Sizes::kFixedBytes + p.matrices * Sizes::kMatrixBytes, stage, kMostStages);
  p.producers = p.boxes.tiles == 1 && p.stages >= 4 && p.matrices >= 4 ? 4 : 1;
  if (p.producers > 1) {
    p.stages -= p.stages % p.producers;
    p.matrices -= p.matrices % p.producers;
  } else if (args.coefficient) {
    p.stages -= p.stages % kNumberWarps;
  }
  launch("readout", readout_kernel<E, kDepth, kWidth, kTransposed, kBoth>,
         dim3(static_cast<unsigned>(std::min(p.items, multiprocessors()))), kThreads,
         static_cast<std::size_t>(p.matrices * Sizes::kMatrixBytes + p.stages * stage + Sizes::kFixedBytes), stream, p);
}

template <typename E>
bool suits(const ReadoutArgs<E>& args, Boxes& boxes) {
  const Shape& shape = args.shape;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const std::int64_t rows = static_cast<std::int64_t>(shape.total_blocks) * heads;
  constexpr std::int64_t kLimit = std::int64_t{1} << 31;
  const auto narrow = [](int dim) { return dim == 64 || dim == 128; };
  return !args.y && !args.denominator && args.diagonal == nullptr && PairFeature<E>::covers(args.x_feature) &&
         PairFeature<E>::covers(args.raw_feature) && shape.initial == 0 && narrow(shape.key_dim) &&
         narrow(shape.value_dim) && !(args.z != nullptr && args.transposed) && rows * shape.key_dim < kLimit &&
         fits(args.x, heads) && fits(args.out, heads) && (!args.raw || fits(args.raw, heads)) && available() &&
         find_boxes(shape, boxes);
}

}  // namespace

template <typename E>
bool read_out(const ReadoutArgs<E>& args, cudaStream_t stream) {
  Params<E> p{};
  p.args = args;
  if (!suits(args, p.boxes)) return false;
  const auto run = [&]<int kDepth, int kWidth>() {
    args.transposed ? launch_readout<E, kDepth, kWidth, true>(p, stream)
                    : launch_readout<E, kDepth, kWidth, false>(p, stream);
  };
  const int depth = args.transposed ? args.shape.value_dim : args.shape.key_dim;
  const int width = args.transposed ? args.shape.key_dim : args.shape.value_dim;
  if (depth == 64) {
    width == 64 ? run.template operator()<64, 64>() : run.template operator()<64, 128>();
  } else {
    width == 64 ? run.template operator()<128, 64>() : run.template operator()<128, 128>();
  }
  return true;
}

template <typename E>
bool read_out_keys(const ReadoutArgs<E>& d_k, const ReadoutArgs<E>& d_v, cudaStream_t stream) {
  Params<E> p{};
  p.args = d_k;
  const Shape& shape = d_k.shape;
  if (shape.key_dim != shape.value_dim || !suits(d_k, p.boxes) || !suits(d_v, p.boxes)) return false;
  p.second = token_map(d_v.out, shape.kv_heads, shape.sequences, p.boxes);
  p.second_feature = d_v.x_feature;
  p.second_factor = static_cast<float>(d_v.factor);
  shape.key_dim == 64 ? launch_readout<E, 64, 64, true, true>(p, stream)
                      : launch_readout<E, 128, 128, true, true>(p, stream);
  return true;
}

template bool read_out_keys<__nv_bfloat16>(const ReadoutArgs<__nv_bfloat16>&, const ReadoutArgs<__nv_bfloat16>&,
                                           cudaStream_t);
template bool read_out_keys<__half>(const ReadoutArgs<__half>&, const ReadoutArgs<__half>&, cudaStream_t);
template bool read_out<__nv_bfloat16>(const ReadoutArgs<__nv_bfloat16>&, cudaStream_t);
template bool read_out<__half>(const ReadoutArgs<__half>&, cudaStream_t);

}  // namespace mhla::cuda::hopper
