// One thread block: a tile of rows and kWidth output columns of one (sequence, head); every warp has 16 of the rows.
#pragma once

#include "cuda/dense/dense.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda {

// kCausal: with a mask. Calls without one do not pay for it.
template <typename Math, int kWidth, int kDepth, bool kCausal>
struct DenseKernel {
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  static constexpr int kWarps = sizeof(E) == 2 ? 8 : sizeof(E) == 4 ? 4 : 2;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kBlocks = kBlocksPerSM<Math, kThreads>;  // on one multiprocessor
  static constexpr int kRows = kWarps * 16;
  static constexpr int kOthers = sizeof(E) == 2 ? 64 : sizeof(E) == 4 ? 32 : 16;
  static constexpr int kXPitch = kPitch<E, kDepth>, kOutPitch = kPitch<E, kWidth>;
  static constexpr int kN = kWidth / 8, kPairs = kOthers / 8;  // 8-column tiles of the result, and of pairs

  struct Stage {
    E y[kOthers * kXPitch], rest[kOthers * kOutPitch];
  };
  struct Memory {
    E x[kRows * kXPitch];  // in the end the result
    Stage stages[2];
    E raw[kRows * kOutPitch];  // where pair sums are wanted
  };
  static std::size_t shared_bytes(bool with_raw) { return sizeof(Memory) - (with_raw ? 0 : sizeof(Memory::raw)); }
  // Tokens of this tile's rows, and of the others at steps to come; -1 for padding.
  struct Places {
    int rows[kRows];
    int others[4][kOthers];
  };

  const DenseArgs<E>& args;
  const Shape& shape;
  const Divider& by_capacity;
  Memory& memory;
  Places& places;
  int unit, row0, column0;
  int head, group;  // group: query heads of a key head
  SequenceRow s;
  int capacity, rows;
  int first, last;  // windows of other rows that the rows of this tile meet
  int steps;
  int warp_row, lane_row;
  int block;  // of all rows of the warp
  bool mask_padding, has_features;

  __device__ DenseKernel(const DenseArgs<E>& arguments, const Divider& by_capacity_, int row_tiles,
                         unsigned char* shared, Places& shared_places)
      : args(arguments), shape(args.shape), by_capacity(by_capacity_), memory(*reinterpret_cast<Memory*>(shared)),
        places(shared_places) {
    unit = static_cast<int>(blockIdx.x) / row_tiles;
    row0 = static_cast<int>(blockIdx.x) % row_tiles * kRows;
    column0 = static_cast<int>(blockIdx.y) * kWidth;
    const int heads = args.of_queries ? shape.heads : shape.kv_heads;
    group = shape.heads / shape.kv_heads;
    s = shape.sequence(unit / heads);
    head = unit % heads;
    capacity = static_cast<int>(by_capacity.divisor);
    rows = s.blocks * capacity;
  }

  __device__ void run() {
    if (row0 >= rows) return;
    find_others();
    load_rows();
    load_others(0);
    find_warp();

    T acc[1][kN][4];
    clear(acc);
    T sums[4] = {0, 0, 0, 0};
    find_features();
    PairSum pair_sum;
    for (int step = 0; step < steps; ++step) {
      load_others(step + 1);
      copy_wait<1>();
      __syncthreads();
      fill_others(step + 2);
      Stage& stage = memory.stages[step & 1];
      apply_features(stage, step == 0);
      const Others others{other_row(step), args.of_queries ? head : other_head(step), places.others[step & 3]};
      T pairs[1][kPairs][4];
      form_pairs(pairs, stage, others);
      if (args.pair_sums != nullptr) sum_pairs(pair_sum, pairs, stage, others);
      const unsigned seen = weigh_pairs(pairs, others);
      multiply_pairs(acc, sums, pairs, stage, seen);
      __syncthreads();
    }
    copy_wait<0>();
    if (args.pair_sums != nullptr) put_pair_sum(pair_sum, -1);
    finish(acc, sums);
    __syncthreads();
    put<kOutPitch>(memory.x, acc, warp_row, 0);
    __syncthreads();
    store();
  }

  // ---- loads

  __device__ int place_of(int row) const {
    if (args.order != nullptr) return row < rows ? args.order[row] : -1;
    const int b = by_capacity.divide(row);
    if (b >= s.blocks) return -1;
    const BlockTokens tokens(shape, s, b);
    const int n = row - b * capacity;
    return n < tokens.count() ? static_cast<int>(tokens[n]) : -1;
  }

  __device__ void find_others() {
    const int last_block = min(s.blocks, by_capacity.divide(min(rows, row0 + kRows) - 1) + 1);
    first = kCausal && !args.of_queries ? by_capacity.divide(row0) * capacity / kOthers : 0;
    last = ((kCausal && args.of_queries ? last_block * capacity : rows) + kOthers - 1) / kOthers;
    steps = (last - first) * (args.of_queries ? 1 : group);
  }
  __device__ int other_head(int step) const {
    return args.of_queries ? head / group : head * group + step / (last - first);
  }
  // The first other row of a step.
  __device__ int other_row(int step) const { return (first + step % (last - first)) * kOthers; }

  __device__ void fill_others(int step) {
    if (step >= steps) return;
    const int other0 = other_row(step);
    for (int r = static_cast<int>(threadIdx.x); r < kOthers; r += kThreads)
      places.others[step & 3][r] = place_of(other0 + r);
  }

  __device__ void load_rows() {
    for (int r = static_cast<int>(threadIdx.x); r < kRows; r += kThreads) places.rows[r] = place_of(row0 + r);
    fill_others(0);
    fill_others(1);
    __syncthreads();
    const int* const at = places.rows;
    const auto x = args.x.head(s.batch, head);
    load_tile<kRows, kDepth, kThreads>(memory.x, args.x.dim, args.x.vectors, x.data,
                                       [=](int r) { return row_offset(at[r], x.token_stride); });
    if (args.pair_sums == nullptr) return;
    const auto raw = args.raw.head(s.batch, head);
    load_tile<kRows, kWidth, kThreads>(memory.raw, args.raw.dim - column0, args.raw.vectors, raw.data + column0,
                                       [=](int r) { return row_offset(at[r], raw.token_stride); });
  }

  __device__ void load_others(int step) {
    if (step < steps) {
      const int h = other_head(step);
      const auto y = args.y.head(s.batch, h);
      const auto rest = args.rest.head(s.batch, h);
      const int* const at = places.others[step & 3];
      Stage& stage = memory.stages[step & 1];
      load_tile<kOthers, kDepth, kThreads>(stage.y, args.y.dim, args.y.vectors, y.data,
                                           [=](int r) { return row_offset(at[r], y.token_stride); });
      load_tile<kOthers, kWidth, kThreads>(stage.rest, args.rest.dim - column0, args.rest.vectors, rest.data + column0,
                                           [=](int r) { return row_offset(at[r], rest.token_stride); });
    }
    copy_commit();
  }

  __device__ void find_warp() {
    warp_row = static_cast<int>(threadIdx.x) / 32 * 16;
    block = min(by_capacity.divide(row0 + warp_row), s.blocks - 1);
    lane_row = row0 + warp_row + (lane_id() >> 2);
  }

  __device__ void find_features() {
    // Features of padding are zero, or its pairs have to be.
    mask_padding = !args.y_feature.is_floor() || !args.rest_feature.is_floor();
    has_features = args.x_feature.map != FeatureMap::identity || args.y_feature.map != FeatureMap::identity ||
                   args.rest_feature.map != FeatureMap::identity || mask_padding || !args.x_feature.is_floor() ||
                   args.pair_sums != nullptr;
  }
  __device__ void apply_features(Stage& stage, bool first_step) {
    if (first_step) {
      apply_any_feature<kRows, kDepth, kThreads>(memory.x, args.x.dim, args.x_feature);
      if (args.pair_sums != nullptr)
        apply_any_feature<kRows, kWidth, kThreads>(memory.raw, args.raw.dim - column0, args.raw_feature);
    }
    apply_any_feature<kOthers, kDepth, kThreads>(stage.y, args.y.dim, args.y_feature);
    apply_any_feature<kOthers, kWidth, kThreads>(stage.rest, args.rest.dim - column0, args.rest_feature);
    if (has_features) __syncthreads();
  }

  // ---- pairs

  // The other rows of a step.
  struct Others {
    int row0, query_head;
    const int* places;
  };

  // x_r . y_o + g
  __device__ void form_pairs(T (&pairs)[1][kPairs][4], const Stage& stage, const Others& others) {
    clear(pairs);
    multiply<Math, false, false, kDepth, kXPitch, kXPitch>(pairs, memory.x, warp_row, NoFloor{}, stage.y, 0, NoExtra{});
    if (!args.g) return;
    for_each(pairs, lane_row - (lane_id() >> 2), others.row0, [&](int r, int o, T& value) {
      const int place = args.of_queries ? places.rows[r - row0] : others.places[o - others.row0];
      if (place >= 0) value += args.g.at(s.batch, place, others.query_head);
    });
  }

  // A lane's part of the terms of d m for the rows of its warp and one block of others, which come block after block.
  struct PairSum {
    T sum = 0;
    int block = -1;
  };
  __device__ void put_pair_sum(PairSum& part, int next_block) {
    if (part.block >= 0) {
      for (int offset = 16; offset > 0; offset /= 2) part.sum += __shfl_down_sync(0xffffffffu, part.sum, offset);
      const std::int64_t tile =
          static_cast<std::int64_t>(unit) * (shape.uniform.blocks * capacity / 16) + (row0 + warp_row) / 16;
      if (lane_id() == 0 && row0 + warp_row < rows)
        args.pair_sums[(tile * gridDim.y + blockIdx.y) * shape.uniform.blocks + part.block] =
            part.sum * static_cast<T>(args.factor);
    }
    part.block = next_block;
    part.sum = 0;
  }
  __device__ void sum_pairs(PairSum& part, const T (&pairs)[1][kPairs][4], const Stage& stage, const Others& others) {
    T products[1][kPairs][4];  // phi(raw_r) . rest_o
    clear(products);
    multiply<Math, false, false, kWidth, kOutPitch, kOutPitch>(products, memory.raw, warp_row, NoFloor{}, stage.rest, 0,
                                                               NoExtra{});
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const int other_block = by_capacity.divide(others.row0 + j * 8);
      if (other_block >= s.blocks) continue;
      if (other_block != part.block) put_pair_sum(part, other_block);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int o = others.row0 + j * 8 + (lane_id() & 3) * 2 + (e & 1);
        const bool seen = other_block < block || !kCausal ||
                          (other_block == block && (!token_causal() || o <= lane_row + (e >> 1) * 8));
        // Padding is zero in one factor of each product; g is not.
        const int r = lane_row + (e >> 1) * 8 - row0;
        if (seen && places.rows[r] >= 0 && others.places[o - others.row0] >= 0)
          part.sum += pairs[0][j][e] * products[0][j][e];
      }
    }
  }

  __device__ bool token_causal() const { return kCausal && shape.masking == Masking::token_causal; }

  // The pairs times their weights, and zeros where a query does not see the key. Bit c of the result: whether columns
  // [16 c, 16 c + 16), which lie in one block, are seen from the warp's block or see it.
  __device__ unsigned weigh_pairs(T (&pairs)[1][kPairs][4], const Others& others) {
    // Lane c looks up the weight of these columns.
    T weight = 0;
    int weight_block = -1;
    bool seen = false;
    if (lane_id() < kOthers / 16) {
      weight_block = by_capacity.divide(others.row0 + lane_id() * 16);
      const int i = args.of_queries ? block : weight_block, b = args.of_queries ? weight_block : block;
      seen = weight_block < s.blocks && (!kCausal || b <= i);
      if (seen) weight = shape.template weight<T>(shape.matrix(s.index, others.query_head), i, b);
    }
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const T factor = __shfl_sync(0xffffffffu, weight, j / 2);
#pragma unroll
      for (int e = 0; e < 4; ++e) pairs[0][j][e] *= factor;
    }
    if (mask_padding || token_causal()) hide_pairs(pairs, others, weight_block);
    return kCausal ? __ballot_sync(0xffffffffu, seen) : ~0U;
  }
  __device__ void hide_pairs(T (&pairs)[1][kPairs][4], const Others& others, int weight_block) {
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const bool own = __shfl_sync(0xffffffffu, weight_block, j / 2) == block;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int o = j * 8 + (lane_id() & 3) * 2 + (e & 1);
        const int after = others.row0 + o - (lane_row + (e >> 1) * 8);  // how far the other row lies behind this one
        const bool hidden = token_causal() && own && (args.of_queries ? after > 0 : after < 0);
        if (hidden || (mask_padding && others.places[o] < 0)) pairs[0][j][e] = 0;
      }
    }
  }

  // ---- result

  // A weight of zero does not hide a NaN, so blocks that are not seen are left out.
  __device__ void multiply_pairs(T (&acc)[1][kN][4], T (&sums)[4], T (&pairs)[1][kPairs][4], const Stage& stage,
                                 unsigned seen) {
    const auto ones = Math::ones();
#pragma unroll
    for (int k = 0; k < kOthers; k += Math::kStep) {
      if (kCausal && (seen >> k / 16 & 1) == 0) continue;
      const typename Math::A fragment = Math::chain(&pairs[0][k / 8]);
      if (args.normalize) Math::mma(sums, fragment, ones);
#pragma unroll
      for (int j = 0; j < kN; j += 2) {
        typename Math::B fb[2];
        Math::template load_b<true>(fb, stage.rest, kOutPitch, j * 8, k);
        Math::mma(acc[0][j], fragment, fb[0]);
        Math::mma(acc[0][j + 1], fragment, fb[1]);
      }
    }
  }

  __device__ void finish(T (&acc)[1][kN][4], const T (&sums)[4]) {
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
  }

  __device__ void store() {
    const int* const at = places.rows;
    if (args.raw)
      chain_feature<kRows, kWidth, kThreads>(memory.x, args.raw.dim - column0, args.raw.vectors,
                                             args.raw.head(s.batch, head), column0, at, args.raw_feature);
    const auto out = args.out.head(s.batch, head);
    store_tile<kRows, kWidth, kThreads>(memory.x, args.out.dim - column0, args.out.vectors, out.data + column0,
                                        [=](int r) { return row_offset(at[r], out.token_stride); });
  }
};

template <typename Math, int kWidth, int kDepth, bool kCausal>
__global__ __launch_bounds__(
    DenseKernel<Math, kWidth, kDepth, kCausal>::kThreads,
    DenseKernel<Math, kWidth, kDepth,
                kCausal>::kBlocks) void dense_kernel(const __grid_constant__ DenseArgs<typename Math::Element> args,
                                                     Divider by_capacity, int row_tiles) {
  using Kernel = DenseKernel<Math, kWidth, kDepth, kCausal>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ typename Kernel::Places places;
  Kernel(args, by_capacity, row_tiles, shared, places).run();
}

template <typename Math>
void multiply_pairs(const DenseArgs<typename Math::Element>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int depth = (args.x.dim + 15) / 16 * 16;
  const std::int64_t units = shape.sequences * (args.of_queries ? shape.heads : shape.kv_heads);
  const auto run = [&]<int kWidth, int kDepth>() {
    const bool causal = shape.masking != Masking::none;
    using Kernel = DenseKernel<Math, kWidth, kDepth, true>;  // its sizes are those of both
    const auto row_tiles = static_cast<int>((dense_rows(shape) + Kernel::kRows - 1) / Kernel::kRows);
    launch("dense", causal ? dense_kernel<Math, kWidth, kDepth, true> : dense_kernel<Math, kWidth, kDepth, false>,
           grid_of("dense", units * row_tiles, (args.out.dim + kWidth - 1) / kWidth), Kernel::kThreads,
           Kernel::shared_bytes(args.pair_sums != nullptr), stream, args, Divider(dense_capacity(shape)), row_tiles);
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
