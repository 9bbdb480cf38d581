// The readout kernel; readout.hpp says what it computes. One thread block: kWidth output columns of one block of
// tokens.
#pragma once

#include "cuda/readout/readout.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda {

// A thread block at work. kPairs: with the pairs of tokens inside the block.
template <typename Math, int kWidth, int kDepth, bool kTransposed, bool kPairs>
struct ReadoutKernel {
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  using Grid = typename Tiles<Math, kWidth>::Readout;
  using Pairs = typename Tiles<Math, kWidth>::Pairs;
  static constexpr int kRows = Grid::kRows, kOthers = Pairs::kColumns, kThreads = Grid::kThreads;
  static constexpr int kBlocks = kTransposed && kPairs ? 1 : kBlocksPerSM<Math, kThreads>;  // on one multiprocessor
  static_assert(Grid::kWarps == Pairs::kWarps && Pairs::kRows == kRows);
  static constexpr int kRestRows = kPairs && kOthers > kRows ? kOthers : kRows;
  static constexpr int kXPitch = kPitch<E, kDepth>, kOutPitch = kPitch<E, kWidth>, kPairPitch = kPitch<E, kOthers>;
  static constexpr int kWPitch = kTransposed ? kXPitch : kOutPitch;
  static constexpr int kWSize = (kTransposed ? kWidth : kDepth) * kWPitch;
  // The sum over pairs is kept apart only where `diagonal` needs it.
  static constexpr bool kInnerApart = kPairs && kTransposed;

  struct PlainMemory {
    E W[kWSize], x[2][kRows * kXPitch], rest[kRestRows * kOutPitch];
  };
  struct PairMemory {
    E W[kWSize], x[1][kRows * kXPitch], y[kOthers * kXPitch], rest[kRestRows * kOutPitch], pairs[kRows * kPairPitch];
  };
  using Memory = std::conditional_t<kPairs, PairMemory, PlainMemory>;  // the result leaves through `rest`
  using Windows = typename TokenTable<kRows>::Windows;

  const ReadoutArgs<E>& args;
  const Shape& shape;
  Memory& memory;
  TokenTable<kRows> table;
  const Shape::Item& item;
  int batch, head, group;     // group: query heads of a key head
  const BlockTokens& tokens;  // not a copy: its address goes to functions that are not inlined
  int count, column0;
  std::int64_t row;  // of W
  int own;           // number of this block, counted from the start of the sequence
  T own_weight;
  float floor;  // of phi(x), where phi is no more than that

  __device__ ReadoutKernel(const ReadoutArgs<E>& arguments, const Shape::Item& item_of_block,
                           const BlockTokens& tokens_of_block, unsigned char* shared, Windows& places)
      : args(arguments), shape(args.shape), memory(*reinterpret_cast<Memory*>(shared)), table(places),
        item(item_of_block), batch(item.s.batch), head(item.head), group(shape.heads / shape.kv_heads),
        tokens(tokens_of_block), count(tokens.count()), column0(static_cast<int>(blockIdx.y) * kWidth),
        row(args.of_queries ? shape.mixed_row(item.s, head, item.block)
                            : shape.entry_row(item.s, head, shape.initial + item.block)) {}

  __device__ void run() {
    table.fill(0, tokens);
    table.fill(1, tokens);
    __syncthreads();
    load_x(0);
    load_W();
    floor = args.x_feature.floor();
    own = shape.initial_full + item.block;
    own_weight =
        kPairs && args.of_queries ? shape.template weight<T>(shape.matrix(item.s.index, head), own, own) : T(1);
    T diagonal = 0;
    for (int row0 = 0; row0 < count; row0 += kRows) {
      if constexpr (kPairs) {
        load_others(0, first_other(row0));
      } else {
        load_x(row0 + kRows);
      }
      copy_wait<1>();
      __syncthreads();
      table.fill(row0 / kRows + 2, tokens);
      read_out_rows(row0, diagonal);
      store(table[row0 / kRows]);
    }
    if constexpr (kPairs) {
      if (args.diagonal != nullptr) put_diagonal(diagonal);
    }
  }

  // ---- loads

  __device__ E* x_tile(int row0) { return memory.x[kPairs ? 0 : row0 / kRows % 2]; }

  __device__ void load_x(int row0) {
    if (row0 < count) {
      const auto x = args.x.head(batch, head);
      const int* const at = table[row0 / kRows];
      load_tile<kRows, kDepth, kThreads>(x_tile(row0), args.x.dim, args.x.vectors, x.data,
                                         [=](int r) { return row_offset(at[r], x.token_stride); });
    }
    copy_commit();
  }

  __device__ T z_at(int k) const { return k < shape.key_pad ? args.z[row * shape.key_pad + k] : T(0); }

  __device__ void load_W() {
    const E* const from = args.W + row * shape.matrix_size();
    const int pitch = shape.value_pad;
    if constexpr (kTransposed) {
      const int rows = shape.key_pad - column0;
      load_tile<kWidth, kDepth, kThreads>(memory.W, shape.value_pad, true, from + column0 * pitch,
                                          [=](int r) { return matrix_row(r, rows, pitch); });
    } else {
      const int rows = shape.key_pad;
      load_tile<kDepth, kWidth, kThreads>(memory.W, shape.value_pad - column0, true, from + column0,
                                          [=](int r) { return matrix_row(r, rows, pitch); });
    }
    if constexpr (Math::kColumnBesideTile && !kTransposed) {
      for (int k = static_cast<int>(threadIdx.x); args.z != nullptr && k < kDepth; k += kThreads)
        Math::put_column(memory.W + k * kOutPitch + kWidth, z_at(k));
    }
    copy_commit();
  }

  // The other side of the pairs: head h of the others (several where rows are keys), tokens from other0 on.
  __device__ int other_head(int h) const { return args.of_queries ? head / group : head * group + h; }
  __device__ int first_other(int row0) const { return args.of_queries ? 0 : row0 / kOthers * kOthers; }
  __device__ int last_other(int row0) const { return args.of_queries ? min(count, row0 + kRows) : count; }

  __device__ void load_others(int h, int other0) {
    const auto y = args.y.head(batch, other_head(h));
    const auto rest = args.rest.head(batch, other_head(h));
    const auto row_of = [other0, count = count, &tokens = tokens](int r, int stride) {
      const bool valid = other0 + r < count;
      return RowOffset{valid ? tokens[other0 + r] * stride : 0, valid};
    };
    load_tile<kOthers, kDepth, kThreads>(memory.y, args.y.dim, args.y.vectors, y.data,
                                         [=](int r) { return row_of(r, y.token_stride); });
    load_tile<kOthers, kWidth, kThreads>(memory.rest, args.rest.dim - column0, args.rest.vectors, rest.data + column0,
                                         [=](int r) { return row_of(r, rest.token_stride); });
    copy_commit();
  }

  // ---- sums

  // Of a warp's rows. `dot` is q . z~; `inner` and `inner_dot` are the parts of the pairs.
  struct Sums {
    T acc[Grid::kM][Grid::kN][4], dot[Grid::kM][1][4];
    T inner[kInnerApart ? Grid::kM : 1][kInnerApart ? Grid::kN : 2][4];
    T inner_dot[kPairs ? Grid::kM : 1][1][4];
  };

  __device__ void read_out_rows(int row0, T& diagonal) {
    E* const x = x_tile(row0);
    if (!args.x_feature.is_floor()) {
      apply_feature<kRows, kDepth, kThreads>(x, args.x.dim, args.x_feature);
      __syncthreads();
    }
    Sums sums;
    multiply_W(sums, x);
    if constexpr (kPairs) {
      add_pairs(sums, x, row0);
      __syncthreads();
      load_x(row0 + kRows);
    }
    finish(sums, row0, diagonal);
    put<kOutPitch>(memory.rest, sums.acc, Grid::row(), Grid::column());
    __syncthreads();
  }

  __device__ void multiply_W(Sums& sums, const E* x) {
    clear(sums.acc);
    clear(sums.dot);
    multiply<Math, false, !kTransposed, kDepth, kXPitch, kWPitch>(
        sums.acc, x, Grid::row(), floor, memory.W, Grid::column(), [&](int k, const auto& fragments) {
          if (args.z == nullptr) return;
          typename Math::Column column;
          if constexpr (Math::kColumnBesideTile && !kTransposed) {
            Math::load_column(column, memory.W + kWidth, kOutPitch, k);
          } else {
            column = Math::column([&](int j) { return z_at(k + j); });
          }
#pragma unroll
          for (int i = 0; i < Grid::kM; ++i) Math::mma(sums.dot[i][0], fragments[i], column);
        });
  }

  // Weight of the pairs with head `query_head` in the sum they are added to.
  __device__ T pair_weight(int query_head) const {
    const T weight =
        args.of_queries ? own_weight : shape.template weight<T>(shape.matrix(item.s.index, query_head), own, own);
    if constexpr (kInnerApart) {
      return args.of_queries ? T(1) : weight;
    } else {
      return weight * static_cast<T>(args.pair_factor);
    }
  }

  __device__ void add_pairs(Sums& sums, const E* x, int row0) {
    clear(sums.inner);
    clear(sums.inner_dot);
    const int other_heads = args.of_queries ? 1 : group, first = first_other(row0), last = last_other(row0);
    for (int h = 0; h < other_heads; ++h) {
      const int query_head = args.of_queries ? head : other_head(h);
      const T weight = pair_weight(query_head);
      for (int other0 = first; other0 < last; other0 += kOthers) {
        if (h > 0 || other0 > first) {
          __syncthreads();
          load_others(h, other0);
        }
        copy_wait<0>();
        __syncthreads();
        apply_features_of_others();
        form_pairs(x, row0, other0, query_head, weight);
        __syncthreads();
        multiply_pairs(sums);
      }
    }
  }

  __device__ void apply_features_of_others() {
    if (!args.y_feature.is_floor()) apply_feature<kOthers, kDepth, kThreads>(memory.y, args.y.dim, args.y_feature);
    if (!args.rest_feature.is_floor())
      apply_feature<kOthers, kWidth, kThreads>(memory.rest, args.rest.dim - column0, args.rest_feature);
    if (!args.y_feature.is_floor() || !args.rest_feature.is_floor()) __syncthreads();
  }

  // weight (x_r . y_o + g) where the query sees the key, rounded, into their tile.
  __device__ void form_pairs(const E* x, int row0, int other0, int query_head, T weight) {
    T pairs[Pairs::kM][Pairs::kN][4];
    clear(pairs);
    multiply<Math, false, false, kDepth, kXPitch, kXPitch>(pairs, x, Pairs::row(), floor, memory.y, Pairs::column(),
                                                           NoExtra{}, args.y_feature.floor());
    for_each(pairs, row0 + Pairs::row(), other0 + Pairs::column(), [&](int r, int o, T& value) {
      const int query = args.of_queries ? r : o, key = args.of_queries ? o : r;
      if (query >= count || key > query) {
        value = 0;
        return;
      }
      if (args.g) value += args.g.at(batch, tokens[query], query_head);
      value *= weight;
    });
    put<kPairPitch>(memory.pairs, pairs, Pairs::row(), Pairs::column());
  }

  __device__ void multiply_pairs(Sums& sums) {
    const auto multiply_into = [&](auto& acc) {
      multiply<Math, false, true, kOthers, kPairPitch, kOutPitch>(
          acc, memory.pairs, Grid::row(), NoFloor{}, memory.rest, Grid::column(),
          [&](int, const auto& fragments) {
            if (args.z == nullptr) return;
            const auto ones = Math::ones();
#pragma unroll
            for (int i = 0; i < Grid::kM; ++i) Math::mma(sums.inner_dot[i][0], fragments[i], ones);
          },
          args.rest_feature.floor());
    };
    if constexpr (kInnerApart) {
      multiply_into(sums.inner);
    } else {
      multiply_into(sums.acc);
    }
  }

  // ---- the end, in full precision: factors, rank-one term, denominator

  __device__ void finish(Sums& sums, int row0, T& diagonal) {
    const int* const at = table[row0 / kRows];
    const int lane_row = lane_id() >> 2;
#pragma unroll
    for (int i = 0; i < Grid::kM; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        finish_row(sums, i, half, at[Grid::row() + i * 16 + half * 8 + lane_row], diagonal);
  }

  // Of the row of a token at `place`, what this lane has.
  __device__ void finish_row(Sums& sums, int i, int half, int place, T& diagonal) {
    T inverse = 1, coefficient = static_cast<T>(args.rank_one_factor);
    if (args.z != nullptr) inverse = T(1) / denominator(sums, i, half);
    if (place >= 0) {
      if (args.denominator) inverse = T(1) / args.denominator.at(batch, place, head);
      if (args.coefficient) coefficient *= args.coefficient.at(batch, place, head);
    }
    const T factor = static_cast<T>(args.factor) * inverse;
#pragma unroll
    for (int j = 0; j < Grid::kN; ++j) {
      sums.acc[i][j][half * 2] *= factor;
      sums.acc[i][j][half * 2 + 1] *= factor;
    }
    if constexpr (kInnerApart) add_inner(sums, i, half, place, inverse, diagonal);
    if (args.vector == nullptr) return;
    coefficient *= inverse;
    const int column = lane_column();
#pragma unroll
    for (int j = 0; j < Grid::kN; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (column + j * 8 + e < shape.key_dim)
          sums.acc[i][j][half * 2 + e] += coefficient * args.vector[row * shape.key_pad + column + j * 8 + e];
  }

  __device__ int lane_column() const { return column0 + Grid::column() + (lane_id() & 3) * 2; }

  __device__ T denominator(const Sums& sums, int i, int half) const {
    T sum = Math::column_sum(sums.dot[i][0], half);
    if constexpr (kPairs) {  // weighted as a part of the sum that args.factor multiplies
      sum += Math::column_sum(sums.inner_dot[i][0], half) / static_cast<T>(args.pair_factor);
    }
    return sum * static_cast<T>(shape.scale) + static_cast<T>(shape.eps);
  }

  // The sum over pairs, where it was kept apart, and its part of d m[b, b].
  __device__ void add_inner(Sums& sums, int i, int half, int place, T inverse, T& diagonal) {
    const int column = lane_column();
    const T factor = static_cast<T>(args.factor) * static_cast<T>(args.pair_factor);
    const bool summing = args.diagonal != nullptr && place >= 0;
    const E* const raw = summing ? args.raw.head(batch, head).row(place) : nullptr;
#pragma unroll
    for (int j = 0; j < Grid::kN; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const T pair_sum = sums.inner[i][j][half * 2 + e] * factor;
        sums.acc[i][j][half * 2 + e] += own_weight * pair_sum * inverse;
        if (summing && column + j * 8 + e < args.raw.dim)
          diagonal += pair_sum * args.raw_feature(to_accumulator(raw[column + j * 8 + e]));
      }
  }

  __device__ void store(const int* at) {
    if (args.raw)
      chain_feature<kRows, kWidth, kThreads>(memory.rest, args.raw.dim - column0, args.raw.vectors,
                                             args.raw.head(batch, head), column0, at, args.raw_feature);
    const auto out = args.out.head(batch, head);
    store_tile<kRows, kWidth, kThreads>(memory.rest, args.out.dim - column0, args.out.vectors, out.data + column0,
                                        [=](int r) { return row_offset(at[r], out.token_stride); });
    __syncthreads();
  }

  // The sum of what all threads have.
  __device__ void put_diagonal(T diagonal) {
    __shared__ T parts[Grid::kWarps];
    for (int offset = 16; offset > 0; offset /= 2) diagonal += __shfl_down_sync(0xffffffffu, diagonal, offset);
    if (lane_id() == 0) parts[threadIdx.x / 32] = diagonal;
    __syncthreads();
    if (threadIdx.x != 0) return;
    T sum = 0;
    for (const T part : parts) sum += part;
    args.diagonal[row * args.diagonal_stride + blockIdx.y] = sum;
    if (blockIdx.y != 0) return;
    for (auto tile = static_cast<int>(gridDim.y); tile < args.diagonal_stride; ++tile)
      args.diagonal[row * args.diagonal_stride + tile] = 0;
  }
};

template <typename Math, int kWidth, int kDepth, bool kTransposed, bool kPairs>
__global__ __launch_bounds__(
    ReadoutKernel<Math, kWidth, kDepth, kTransposed, kPairs>::kThreads,
    ReadoutKernel<Math, kWidth, kDepth, kTransposed, kPairs>::
        kBlocks) void readout_kernel(const __grid_constant__ ReadoutArgs<typename Math::Element> args) {
  using Kernel = ReadoutKernel<Math, kWidth, kDepth, kTransposed, kPairs>;
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ typename Kernel::Windows places;
  const Shape::Item item = args.shape.item(static_cast<int>(blockIdx.x), args.of_queries);
  const BlockTokens tokens(args.shape, item.s, item.block);
  Kernel(args, item, tokens, shared, places).run();
}

template <typename Math, bool kPairs>
void launch_readout(const ReadoutArgs<typename Math::Element>& args, cudaStream_t stream) {
  const Shape& shape = args.shape;
  const int depth = args.transposed ? shape.value_pad : shape.key_pad;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const auto run = [&]<int kWidth, int kDepth, bool kTransposed>() {
    using Kernel = ReadoutKernel<Math, kWidth, kDepth, kTransposed, kPairs>;
    const dim3 grid(static_cast<unsigned>(shape.total_blocks * heads),
                    static_cast<unsigned>((args.out.dim + kWidth - 1) / kWidth));
    launch("readout", readout_kernel<Math, kWidth, kDepth, kTransposed, kPairs>, grid, Kernel::kThreads,
           sizeof(typename Kernel::Memory), stream, args);
  };
  const auto with_form = [&]<int kWidth, int kDepth>() {
    args.transposed ? run.template operator()<kWidth, kDepth, true>()
                    : run.template operator()<kWidth, kDepth, false>();
  };
  with_width<Math>(max(args.out.dim, min(depth, 128)), [&](auto width) {
    constexpr bool kNarrow = sizeof(typename Math::Element) == 2 && width < 128;  // no wider depth comes here
    if (kNarrow || depth <= width) {
      with_form.template operator()<width, width>();
    } else if constexpr (!kNarrow) {
      with_form.template operator()<width, 256>();
    }
  });
}

}  // namespace mhla::cuda
