// One thread block: a tile of rows and kWidth output columns of one (sequence, head); every warp has 16 of the rows.
#pragma once

#include "cuda/dense/dense.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda {

template <typename Math, int kWidth, int kDepth>
struct DenseKernel {
  using E = typename Math::Element;
  static constexpr int kWarps = sizeof(E) == 2 ? 8 : sizeof(E) == 4 ? 4 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kRows = kWarps * 16;
  static constexpr int kOthers = sizeof(E) == 2 ? 64 : sizeof(E) == 4 ? 32 : 16;
  static constexpr int kX = kRows * kPitch<E, kDepth>;
  static constexpr int kY = kOthers * kPitch<E, kDepth>;
  static constexpr int kRest = kOthers * kPitch<E, kWidth>;
  static constexpr int kRaw = kRows * kPitch<E, kWidth>;
  static std::size_t shared_bytes(bool with_raw) {
    return sizeof(E) * static_cast<std::size_t>(kX + 2 * (kY + kRest) + (with_raw ? kRaw : 0));
  }
};

template <typename Math, int kWidth, int kDepth>
__global__ __launch_bounds__(
    DenseKernel<Math, kWidth, kDepth>::kThreads,
    (kBlocksPerSM<Math,
                  DenseKernel<Math, kWidth, kDepth>::kThreads>)) void dense_kernel(const __grid_constant__
                                                                                       DenseArgs<typename Math::Element>
                                                                                           args,
                                                                                   Divider by_capacity, int row_tiles) {
  using Kernel = DenseKernel<Math, kWidth, kDepth>;
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  constexpr int kRows = Kernel::kRows, kOthers = Kernel::kOthers, kThreads = Kernel::kThreads;
  constexpr int kXPitch = kPitch<E, kDepth>, kOutPitch = kPitch<E, kWidth>;
  constexpr int kN = kWidth / 8, kPairs = kOthers / 8;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ int row_places[kRows];
  __shared__ int other_places[4][kOthers];
  E* const x_tile = reinterpret_cast<E*>(shared);
  E* const stages = x_tile + Kernel::kX;
  E* const raw_tile = stages + 2 * (Kernel::kY + Kernel::kRest);

  const Shape& shape = args.shape;
  const int unit = static_cast<int>(blockIdx.x) / row_tiles;
  const int row0 = static_cast<int>(blockIdx.x) % row_tiles * kRows;
  const int column0 = static_cast<int>(blockIdx.y) * kWidth;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const int group = shape.heads / shape.kv_heads;
  const SequenceRow s = shape.sequence(unit / heads);
  const int head = unit % heads;
  const auto capacity = static_cast<int>(by_capacity.divisor);
  const int rows = s.blocks * capacity;
  if (row0 >= rows) return;

  const auto place_of = [&](int row) {
    if (args.order != nullptr) return row < rows ? args.order[row] : -1;
    const int block = by_capacity.divide(row);
    if (block >= s.blocks) return -1;
    const BlockTokens tokens(shape, s, block);
    const int n = row - block * capacity;
    return n < tokens.count() ? static_cast<int>(tokens[n]) : -1;
  };

  // Which other rows the rows of this tile meet.
  const bool causal = shape.masking != Masking::none;
  const int last_block = min(s.blocks, by_capacity.divide(min(rows, row0 + kRows) - 1) + 1);
  const int first = causal && !args.of_queries ? by_capacity.divide(row0) * capacity / kOthers : 0;
  const int last = ((causal && args.of_queries ? last_block * capacity : rows) + kOthers - 1) / kOthers;
  const int other_heads = args.of_queries ? 1 : group;
  const int steps = (last - first) * other_heads;
  const auto other_head = [&](int step) {
    return args.of_queries ? head / group : head * group + step / (last - first);
  };

  const auto fill_others = [&](int step) {
    if (step >= steps) return;
    const int window = first + step % (last - first);
    for (int r = static_cast<int>(threadIdx.x); r < kOthers; r += kThreads)
      other_places[step & 3][r] = place_of(window * kOthers + r);
  };

  const auto x = args.x.head(s.batch, head);
  const auto load_others = [&](int step) {
    if (step < steps) {
      const int h = other_head(step);
      const auto y = args.y.head(s.batch, h);
      const auto rest = args.rest.head(s.batch, h);
      const int* const at = other_places[step & 3];
      E* const y_tile = stages + (step & 1) * (Kernel::kY + Kernel::kRest);
      load_tile<kOthers, kDepth, kThreads>(y_tile, args.y.dim, args.y.vectors, y.data,
                                           [=](int r) { return row_offset(at[r], y.token_stride); });
      load_tile<kOthers, kWidth, kThreads>(y_tile + Kernel::kY, args.rest.dim - column0, args.rest.vectors,
                                           rest.data + column0,
                                           [=](int r) { return row_offset(at[r], rest.token_stride); });
    }
    copy_commit();
  };

  for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads) row_places[r] = place_of(row0 + r);
  fill_others(0);
  fill_others(1);
  __syncthreads();
  load_tile<kRows, kDepth, kThreads>(x_tile, args.x.dim, args.x.vectors, x.data,
                                     [=](int r) { return row_offset(row_places[r], x.token_stride); });
  if (args.pair_sums != nullptr) {
    const auto raw = args.raw.head(s.batch, head);
    load_tile<kRows, kWidth, kThreads>(raw_tile, args.raw.dim - column0, args.raw.vectors, raw.data + column0,
                                       [=](int r) { return row_offset(row_places[r], raw.token_stride); });
  }
  load_others(0);

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int warp_row = warp * 16;
  const int block = min(by_capacity.divide(row0 + warp_row), s.blocks - 1);  // of all rows of the warp
  const int lane_row = row0 + warp_row + (lane_id() >> 2);

  T acc[1][kN][4];
  clear(acc);
  T sums[4] = {0, 0, 0, 0};
  const auto ones = Math::column([](int) { return T(1); });
  // Features of padding are zero, or its pairs have to be.
  const bool mask_padding = !args.y_feature.is_floor() || !args.rest_feature.is_floor();
  const bool has_features = args.x_feature.map != FeatureMap::identity || args.y_feature.map != FeatureMap::identity ||
                            args.rest_feature.map != FeatureMap::identity || mask_padding ||
                            !args.x_feature.is_floor() || args.pair_sums != nullptr;
  T pair_sum = 0;
  int pair_block = -1;
  const auto flush_pairs = [&](int next) {
    if (pair_block >= 0) {
      for (int offset = 16; offset > 0; offset /= 2) pair_sum += __shfl_down_sync(0xffffffffu, pair_sum, offset);
      const std::int64_t tile =
          static_cast<std::int64_t>(unit) * (shape.uniform.blocks * capacity / 16) + (row0 + warp_row) / 16;
      if (lane_id() == 0 && row0 + warp_row < rows)
        args.pair_sums[(tile * gridDim.y + blockIdx.y) * shape.uniform.blocks + pair_block] =
            pair_sum * static_cast<T>(args.factor);
    }
    pair_block = next;
    pair_sum = 0;
  };

  for (int step = 0; step < steps; ++step) {
    const int window = first + step % (last - first);
    load_others(step + 1);
    copy_wait<1>();
    __syncthreads();
    fill_others(step + 2);
    E* const y_tile = stages + (step & 1) * (Kernel::kY + Kernel::kRest);
    E* const rest_tile = y_tile + Kernel::kY;
    if (step == 0) {
      apply_any_feature<kRows, kDepth, kThreads>(x_tile, args.x.dim, args.x_feature);
      if (args.pair_sums != nullptr)
        apply_any_feature<kRows, kWidth, kThreads>(raw_tile, args.raw.dim - column0, args.raw_feature);
    }
    apply_any_feature<kOthers, kDepth, kThreads>(y_tile, args.y.dim, args.y_feature);
    apply_any_feature<kOthers, kWidth, kThreads>(rest_tile, args.rest.dim - column0, args.rest_feature);
    if (has_features) __syncthreads();

    T pairs[1][kPairs][4];
    clear(pairs);
    multiply<Math, false, false, kDepth, kXPitch, kXPitch>(pairs, x_tile, warp_row, NoFloor{}, y_tile, 0, NoExtra{});
    const int query_head = args.of_queries ? head : other_head(step);
    const int other0 = window * kOthers;
    if (args.g) {
      for_each(pairs, lane_row - (lane_id() >> 2), other0, [&](int r, int o, T& value) {
        const int place = args.of_queries ? row_places[r - row0] : other_places[step & 3][o - other0];
        if (place >= 0) value += args.g.at(s.batch, place, query_head);
      });
    }
    if (args.pair_sums != nullptr) {
      T products[1][kPairs][4];
      clear(products);
      multiply<Math, false, false, kWidth, kOutPitch, kOutPitch>(products, raw_tile, warp_row, NoFloor{}, rest_tile, 0,
                                                                 NoExtra{});
      const bool token_causal = shape.masking == Masking::token_causal;
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int other_block = by_capacity.divide(other0 + j * 8);
        if (other_block >= s.blocks) continue;
        if (other_block != pair_block) flush_pairs(other_block);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int o = other0 + j * 8 + (lane_id() & 3) * 2 + (e & 1);
          const bool seen = other_block < block || !causal ||
                            (other_block == block && (!token_causal || o <= lane_row + (e >> 1) * 8));
          // Padding is zero in one factor of each product; g is not.
          const int r = lane_row + (e >> 1) * 8 - row0;
          if (seen && row_places[r] >= 0 && other_places[step & 3][o - other0] >= 0)
            pair_sum += pairs[0][j][e] * products[0][j][e];
        }
      }
    }
    // One weight per 16 columns, which lie in one block: lane c looks up that of columns [16 c, 16 c + 16).
    T weight = 0;
    int weight_block = -1;
    if (lane_id() < kOthers / 16) {
      weight_block = by_capacity.divide(other0 + lane_id() * 16);
      const int i = args.of_queries ? block : weight_block, b = args.of_queries ? weight_block : block;
      if (weight_block < s.blocks && (!causal || b <= i)) weight = shape.weight<T>(query_head, i, b);
    }
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const T factor = __shfl_sync(0xffffffffu, weight, j / 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) pairs[0][j][e] *= factor;
    }
    if (mask_padding || shape.masking == Masking::token_causal) {
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const bool own = __shfl_sync(0xffffffffu, weight_block, j / 2) == block;
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int o = j * 8 + (lane_id() & 3) * 2 + (e & 1);
          const int after = other0 + o - (lane_row + (e >> 1) * 8);  // how far the other row lies behind this one
          const bool hidden =
              shape.masking == Masking::token_causal && own && (args.of_queries ? after > 0 : after < 0);
          if (hidden || (mask_padding && other_places[step & 3][o] < 0)) pairs[0][j][e] = 0;
        }
      }
    }
#pragma unroll
    for (int k = 0; k < kOthers; k += Math::kStep) {
      const typename Math::A fragment = Math::chain(&pairs[0][k / 8]);
      if (args.normalize) Math::mma(sums, fragment, ones);
#pragma unroll
      for (int j = 0; j < kN; j += 2) {
        typename Math::B fb[2];
        Math::template load_b<true>(fb, rest_tile, kOutPitch, j * 8, k);
        Math::mma(acc[0][j], fragment, fb[0]);
        Math::mma(acc[0][j + 1], fragment, fb[1]);
      }
    }
    __syncthreads();
  }
  copy_wait<0>();
  if (args.pair_sums != nullptr) flush_pairs(-1);

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    T factor = static_cast<T>(args.factor);
    if (args.normalize) factor /= Math::column_sum(sums, half) * factor + static_cast<T>(shape.eps);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      acc[0][j][half * 2] *= factor;
      acc[0][j][half * 2 + 1] *= factor;
    }
  }
  __syncthreads();
  E* const out_tile = x_tile;
  put<kOutPitch>(out_tile, acc, warp_row, 0);
  __syncthreads();
  if (args.raw)
    chain_feature<kRows, kWidth, kThreads>(out_tile, args.raw.dim - column0, args.raw.vectors,
                                           args.raw.head(s.batch, head), column0, row_places, args.raw_feature);
  const auto out = args.out.head(s.batch, head);
  store_tile<kRows, kWidth, kThreads>(out_tile, args.out.dim - column0, args.out.vectors, out.data + column0,
                                      [=](int r) { return row_offset(row_places[r], out.token_stride); });
}

template <typename Math>
void multiply_pairs(const DenseArgs<typename Math::Element>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int depth = (args.x.dim + 15) / 16 * 16;
  const int units = shape.sequences * (args.of_queries ? shape.heads : shape.kv_heads);
  const auto run = [&]<int kWidth, int kDepth>() {
    using Kernel = DenseKernel<Math, kWidth, kDepth>;
    const auto row_tiles = static_cast<int>((dense_rows(shape) + Kernel::kRows - 1) / Kernel::kRows);
    launch("dense", dense_kernel<Math, kWidth, kDepth>,
           dim3(static_cast<unsigned>(units * row_tiles), static_cast<unsigned>((args.out.dim + kWidth - 1) / kWidth)),
           Kernel::kThreads, Kernel::shared_bytes(args.pair_sums != nullptr), stream, args,
           Divider(dense_capacity(shape)), row_tiles);
  };
  with_width<Math>(max(args.out.dim, min(depth, 128)), [&](auto width) {
    constexpr bool kNarrow = sizeof(typename Math::Element) == 2 && width < 128;  // no wider depth comes here
    if (kNarrow || depth <= width) {
      run.template operator()<width, width>();
    } else if constexpr (!kNarrow) {
      run.template operator()<width, 256>();
    }
  });
}

}  // namespace mhla::cuda
