// The readout kernel; readout.hpp says what it computes. One thread block: kWidth output columns of one block of
// tokens.
#pragma once

#include "cuda/readout/readout.hpp"
#include "cuda/readout/readout_sm90.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda {

template <typename Math, int kWidth, int kDepth, bool kTransposed, bool kPairs>
struct ReadoutKernel {
  using E = typename Math::Element;
  using Grid = typename Tiles<Math, kWidth>::Readout;
  using Pairs = typename Tiles<Math, kWidth>::Pairs;
  static constexpr int kRows = Grid::kRows;
  static constexpr int kOthers = Pairs::kColumns;
  static constexpr int kRestRows = kPairs && kOthers > kRows ? kOthers : kRows;
  static constexpr int kWPitch = kTransposed ? kPitch<E, kDepth> : kPitch<E, kWidth>;

  static constexpr int kW = kTransposed ? kWidth * kPitch<E, kDepth> : kDepth * kPitch<E, kWidth>;
  static constexpr int kX = kRows * kPitch<E, kDepth>;
  static constexpr int kY = kPairs ? kOthers * kPitch<E, kDepth> : kX;  // without pairs: the next x
  static constexpr int kRest = kRestRows * kPitch<E, kWidth>;
  static constexpr int kPairTile = kPairs ? kRows * kPitch<E, kOthers> : 0;
  static constexpr std::size_t kSharedBytes = sizeof(E) * (kW + kX + kY + kRest + kPairTile);
  // The sum over pairs is kept apart only where `diagonal` needs it.
  static constexpr bool kInnerApart = kPairs && kTransposed;
};

template <typename Math, int kWidth, bool kTransposed, bool kPairs>
inline constexpr int kReadoutBlocks =
    kTransposed && kPairs ? 1 : kBlocksPerSM<Math, Tiles<Math, kWidth>::Readout::kThreads>;

template <typename Math, int kWidth, int kDepth, bool kTransposed, bool kPairs>
__global__ __launch_bounds__(
    ReadoutKernel<Math, kWidth, kDepth, kTransposed, kPairs>::Grid::kThreads,
    kReadoutBlocks<Math, kWidth, kTransposed,
                   kPairs>) void readout_kernel(const __grid_constant__ ReadoutArgs<typename Math::Element> args) {
  using Kernel = ReadoutKernel<Math, kWidth, kDepth, kTransposed, kPairs>;
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  using Grid = typename Kernel::Grid;
  using Pairs = typename Kernel::Pairs;
  constexpr int kRows = Kernel::kRows, kOthers = Kernel::kOthers, kThreads = Grid::kThreads;
  constexpr int kXPitch = kPitch<E, kDepth>, kOutPitch = kPitch<E, kWidth>, kPairPitch = kPitch<E, kOthers>;
  static_assert(Grid::kWarps == Pairs::kWarps && Pairs::kRows == kRows);
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ typename TokenTable<kRows>::Windows places;
  TokenTable<kRows> table(places);
  E* const W = reinterpret_cast<E*>(shared);
  E* const x_tiles = W + Kernel::kW;
  E* const y_tile = x_tiles + Kernel::kX;
  E* const rest_tile = y_tile + Kernel::kY;
  E* const pair_tile = rest_tile + Kernel::kRest;

  const Shape& shape = args.shape;
  const int group = shape.heads / shape.kv_heads;
  const auto [s, head, block] = shape.item(static_cast<int>(blockIdx.x), args.of_queries);
  const BlockTokens tokens(shape, s, block);
  const int count = tokens.count();
  const int column0 = static_cast<int>(blockIdx.y) * kWidth;
  const std::int64_t row =
      args.of_queries ? shape.mixed_row(s, head, block) : shape.entry_row(s, head, shape.initial + block);

  const auto x = args.x.head(s.batch, head);
  const auto load_x = [&](int first) {
    if (first < count) {
      E* const tile = x_tiles + (kPairs ? 0 : first / kRows % 2 * Kernel::kX);
      const int* const at = table[first / kRows];
      load_tile<kRows, kDepth, kThreads>(tile, args.x.dim, args.x.vectors, x.data,
                                         [=](int r) { return row_offset(at[r], x.token_stride); });
    }
    copy_commit();
  };
  // Pairs: head h of the others (several where rows are keys), tokens from other0 on.
  const auto other_head = [&](int h) { return args.of_queries ? head / group : head * group + h; };
  const auto load_others = [&](int h, int other0) {
    const auto y = args.y.head(s.batch, other_head(h));
    const auto rest = args.rest.head(s.batch, other_head(h));
    const auto row_of = [=, &tokens](int r, int stride) {
      const bool valid = other0 + r < count;
      return RowOffset{valid ? tokens[other0 + r] * stride : 0, valid};
    };
    load_tile<kOthers, kDepth, kThreads>(y_tile, args.y.dim, args.y.vectors, y.data,
                                         [=](int r) { return row_of(r, y.token_stride); });
    load_tile<kOthers, kWidth, kThreads>(rest_tile, args.rest.dim - column0, args.rest.vectors, rest.data + column0,
                                         [=](int r) { return row_of(r, rest.token_stride); });
    copy_commit();
  };

  const auto z_at = [&](int k) { return k < shape.key_pad ? args.z[row * shape.key_pad + k] : T(0); };
  table.fill(0, tokens);
  table.fill(1, tokens);
  __syncthreads();
  load_x(0);
  {
    const E* const from = args.W + row * shape.matrix_size();
    const int pitch = shape.value_pad;
    if constexpr (kTransposed) {
      const int rows = shape.key_pad - column0;
      load_tile<kWidth, kDepth, kThreads>(W, shape.value_pad, true, from + column0 * pitch,
                                          [=](int r) { return matrix_row(r, rows, pitch); });
    } else {
      const int rows = shape.key_pad;
      load_tile<kDepth, kWidth, kThreads>(W, shape.value_pad - column0, true, from + column0,
                                          [=](int r) { return matrix_row(r, rows, pitch); });
    }
    if constexpr (Math::kColumnBesideTile && !kTransposed) {
      for (int k = static_cast<int>(threadIdx.x); args.z != nullptr && k < kDepth; k += kThreads)
        Math::put_column(W + k * kOutPitch + kWidth, z_at(k));
    }
  }
  copy_commit();

  const float floor = args.x_feature.floor();
  const int own = shape.initial_full + block;
  const T own_weight = kPairs && args.of_queries ? shape.weight<T>(head, own, own) : T(1);
  T diagonal = 0;

  for (int row0 = 0; row0 < count; row0 += kRows) {
    const int first_other = args.of_queries ? 0 : row0 / kOthers * kOthers;
    const int last_other = args.of_queries ? min(count, row0 + kRows) : count;
    if constexpr (kPairs) {
      load_others(0, first_other);
      copy_wait<1>();
    } else {
      load_x(row0 + kRows);
      copy_wait<1>();
    }
    __syncthreads();
    table.fill(row0 / kRows + 2, tokens);
    const int* const at = table[row0 / kRows];
    E* const x_tile = x_tiles + (kPairs ? 0 : row0 / kRows % 2 * Kernel::kX);
    if (!args.x_feature.is_floor()) {
      apply_feature<kRows, kDepth, kThreads>(x_tile, args.x.dim, args.x_feature);
      __syncthreads();
    }

    T acc[Grid::kM][Grid::kN][4];
    clear(acc);
    T dot[Grid::kM][1][4];  // q . z~
    clear(dot);
    multiply<Math, false, !kTransposed, kDepth, kXPitch, Kernel::kWPitch>(
        acc, x_tile, Grid::row(), floor, W, Grid::column(), [&](int k, const auto& fragments) {
          if (args.z == nullptr) return;
          typename Math::B column;
          if constexpr (Math::kColumnBesideTile && !kTransposed) {
            Math::load_column(column, W + kWidth, kOutPitch, k);
          } else {
            column = Math::column([&](int j) { return z_at(k + j); });
          }
#pragma unroll
          for (int i = 0; i < Grid::kM; ++i) Math::mma(dot[i][0], fragments[i], column);
        });

    T inner[Kernel::kInnerApart ? Grid::kM : 1][Kernel::kInnerApart ? Grid::kN : 2][4];
    T inner_dot[kPairs ? Grid::kM : 1][1][4];
    if constexpr (kPairs) {
      clear(inner);
      clear(inner_dot);
      const int other_heads = args.of_queries ? 1 : group;
      for (int h = 0; h < other_heads; ++h) {
        const int query_head = args.of_queries ? head : other_head(h);
        // Weight of the pairs in the sum they are added to.
        T weight = args.of_queries ? own_weight : shape.weight<T>(query_head, own, own);
        if constexpr (Kernel::kInnerApart) {
          if (args.of_queries) weight = T(1);
        } else {
          weight *= static_cast<T>(args.inner_factor / args.factor);
        }
        for (int other0 = first_other; other0 < last_other; other0 += kOthers) {
          if (h > 0 || other0 > first_other) {
            __syncthreads();
            load_others(h, other0);
          }
          copy_wait<0>();
          __syncthreads();
          if (!args.y_feature.is_floor()) apply_feature<kOthers, kDepth, kThreads>(y_tile, args.y.dim, args.y_feature);
          if (!args.rest_feature.is_floor())
            apply_feature<kOthers, kWidth, kThreads>(rest_tile, args.rest.dim - column0, args.rest_feature);
          if (!args.y_feature.is_floor() || !args.rest_feature.is_floor()) __syncthreads();
          T pairs[Pairs::kM][Pairs::kN][4];
          clear(pairs);
          multiply<Math, false, false, kDepth, kXPitch, kXPitch>(pairs, x_tile, Pairs::row(), floor, y_tile,
                                                                 Pairs::column(), NoExtra{}, args.y_feature.floor());
          for_each(pairs, row0 + Pairs::row(), other0 + Pairs::column(), [&](int r, int o, T& value) {
            const int query = args.of_queries ? r : o, key = args.of_queries ? o : r;
            if (query >= count || key > query) {
              value = 0;
              return;
            }
            if (args.g) value += args.g.at(s.batch, tokens[query], query_head);
            value *= weight;
          });
          put<kPairPitch>(pair_tile, pairs, Pairs::row(), Pairs::column());
          __syncthreads();
          const auto add_pairs = [&](int, const auto& fragments) {
            if (args.z == nullptr) return;
            const auto ones = Math::column([](int) { return T(1); });
#pragma unroll
            for (int i = 0; i < Grid::kM; ++i) Math::mma(inner_dot[i][0], fragments[i], ones);
          };
          if constexpr (Kernel::kInnerApart) {
            multiply<Math, false, true, kOthers, kPairPitch, kOutPitch>(inner, pair_tile, Grid::row(), NoFloor{},
                                                                        rest_tile, Grid::column(), add_pairs,
                                                                        args.rest_feature.floor());
          } else {
            multiply<Math, false, true, kOthers, kPairPitch, kOutPitch>(acc, pair_tile, Grid::row(), NoFloor{},
                                                                        rest_tile, Grid::column(), add_pairs,
                                                                        args.rest_feature.floor());
          }
        }
      }
      __syncthreads();
      load_x(row0 + kRows);
    }

    // Finish in full precision: factors, rank-one term, denominator.
    const int lane_row = lane_id() >> 2;
#pragma unroll
    for (int i = 0; i < Grid::kM; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int r = row0 + Grid::row() + i * 16 + half * 8 + lane_row;
        T inverse = 1, coefficient = static_cast<T>(args.rank_one_factor);
        if (args.z != nullptr) {
          T sum = Math::column_sum(dot[i][0], half);
          if constexpr (kPairs) {  // weighted for a sum that is multiplied by args.factor
            sum += Math::column_sum(inner_dot[i][0], half) * static_cast<T>(args.factor / args.inner_factor);
          }
          inverse = T(1) / (sum * static_cast<T>(shape.scale) + static_cast<T>(shape.eps));
        }
        const int place = at[r - row0];
        if (place >= 0) {
          if (args.denominator) inverse = T(1) / args.denominator.at(s.batch, place, head);
          if (args.coefficient) coefficient *= args.coefficient.at(s.batch, place, head);
        }
        const T factor = static_cast<T>(args.factor) * inverse;
#pragma unroll
        for (int j = 0; j < Grid::kN; ++j) {
          acc[i][j][half * 2] *= factor;
          acc[i][j][half * 2 + 1] *= factor;
        }
        const int column = column0 + Grid::column() + (lane_id() & 3) * 2;
        if constexpr (Kernel::kInnerApart) {
          const bool summing = args.diagonal != nullptr && place >= 0;
          const E* const raw = summing ? args.raw.head(s.batch, head).row(place) : nullptr;
#pragma unroll
          for (int j = 0; j < Grid::kN; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const T pair_sum = inner[i][j][half * 2 + e] * static_cast<T>(args.inner_factor);
              acc[i][j][half * 2 + e] += own_weight * pair_sum * inverse;
              if (summing && column + j * 8 + e < args.raw.dim)
                diagonal += pair_sum * args.raw_feature(to_accumulator(raw[column + j * 8 + e]));
            }
        }
        if (args.vector != nullptr) {
          coefficient *= inverse;
#pragma unroll
          for (int j = 0; j < Grid::kN; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (column + j * 8 + e < shape.key_dim)
                acc[i][j][half * 2 + e] += coefficient * args.vector[row * shape.key_pad + column + j * 8 + e];
        }
      }
    put<kOutPitch>(rest_tile, acc, Grid::row(), Grid::column());
    __syncthreads();
    if (args.raw)
      chain_feature<kRows, kWidth, kThreads>(rest_tile, args.raw.dim - column0, args.raw.vectors,
                                             args.raw.head(s.batch, head), column0, at, args.raw_feature);
    const auto out = args.out.head(s.batch, head);
    store_tile<kRows, kWidth, kThreads>(rest_tile, args.out.dim - column0, args.out.vectors, out.data + column0,
                                        [=](int r) { return row_offset(at[r], out.token_stride); });
    __syncthreads();
  }

  if constexpr (kPairs) {
    if (args.diagonal != nullptr) {
      __shared__ T parts[Grid::kWarps];
      for (int offset = 16; offset > 0; offset /= 2) diagonal += __shfl_down_sync(0xffffffffu, diagonal, offset);
      if (lane_id() == 0) parts[threadIdx.x / 32] = diagonal;
      __syncthreads();
      if (threadIdx.x == 0) {
        T sum = 0;
        for (const T part : parts) sum += part;
        args.diagonal[row * args.diagonal_stride + blockIdx.y] = sum;
        if (blockIdx.y == 0)
          for (auto tile = static_cast<int>(gridDim.y); tile < args.diagonal_stride; ++tile)
            args.diagonal[row * args.diagonal_stride + tile] = 0;
      }
    }
  }
}

template <typename Math, bool kPairs>
void launch_readout(const ReadoutArgs<typename Math::Element>& args, cudaStream_t stream) {
  if constexpr (sizeof(typename Math::Element) == 2)
    if (kPairs ? hopper::read_out_causal(args, stream) : hopper::read_out(args, stream)) return;
  const Shape& shape = args.shape;
  const int depth = args.transposed ? shape.value_pad : shape.key_pad;
  const int heads = args.of_queries ? shape.heads : shape.kv_heads;
  const auto run = [&]<int kWidth, int kDepth, bool kTransposed>() {
    using Kernel = ReadoutKernel<Math, kWidth, kDepth, kTransposed, kPairs>;
    const dim3 grid(static_cast<unsigned>(shape.total_blocks * heads),
                    static_cast<unsigned>((args.out.dim + kWidth - 1) / kWidth));
    launch("readout", readout_kernel<Math, kWidth, kDepth, kTransposed, kPairs>, grid, Kernel::Grid::kThreads,
           Kernel::kSharedBytes, stream, args);
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
