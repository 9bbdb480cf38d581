// The portable summary, and the choice: the sm_90a kernel where a call suits it.
#include "cuda/summary/summary.hpp"
#include "cuda/summary/summary_sm90.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda {
namespace {

constexpr int kStages = 3;

template <typename Math, int kWidth>
struct SummaryKernel {
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  using Config = Tiles<Math, kWidth>;
  using Grid = typename Config::Summary;
  static constexpr int kTokens = Config::kTokens;
  static constexpr int kTileElements = kTokens * kPitch<E, kWidth>;
  static constexpr int kOutElements = kWidth * kPitch<E, kWidth>;
  static constexpr int kElements = kStages * 2 * kTileElements;
  static constexpr std::size_t kSharedBytes = sizeof(E) * (kElements > kOutElements ? kElements : kOutElements);
};

// One thread block: one kWidth x kWidth tile of one row of the store.
template <typename Math, int kWidth>
__global__ __launch_bounds__(
    SummaryKernel<Math, kWidth>::Grid::kThreads,
    kBlocksPerSM<Math, SummaryKernel<Math, kWidth>::Grid::kThreads>) void summary_kernel(const __grid_constant__
                                                                                             SummaryArgs<
                                                                                                 typename Math::Element>
                                                                                                 args) {
  using Kernel = SummaryKernel<Math, kWidth>;
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  using Grid = typename Kernel::Grid;
  constexpr int kTokens = Kernel::kTokens, kThreads = Grid::kThreads, kRowPitch = kPitch<E, kWidth>;
  extern __shared__ __align__(16) unsigned char shared[];
  static_assert(kStages == 3);  // the table keeps one window more
  __shared__ typename TokenTable<kTokens>::Windows places;
  E* const tiles = reinterpret_cast<E*>(shared);
  TokenTable<kTokens> table(places);

  const Shape& shape = args.shape;
  const auto [s, head, block] = shape.item(static_cast<int>(blockIdx.x), args.of_queries);
  const BlockTokens tokens(shape, s, block);
  const int count = tokens.count();

  const int right_tiles = (shape.value_pad + kWidth - 1) / kWidth;
  const int m0 = static_cast<int>(blockIdx.y) / right_tiles * kWidth;
  const int n0 = static_cast<int>(blockIdx.y) % right_tiles * kWidth;
  const auto left = args.left.head(s.batch, head);
  const auto right = args.right.head(s.batch, head);

  const int steps = (count + kTokens - 1) / kTokens;
  const auto token_weight = [&](int place) {
    if (place < 0) return T(0);
    return args.weights ? args.weights.at(s.batch, place, head) : T(1);
  };
  const auto load = [&](int step) {
    if (step < steps) {
      E* const tile = tiles + step % kStages * 2 * Kernel::kTileElements;
      const int* const at = table[step];
      load_tile<kTokens, kWidth, kThreads>(tile, args.left.dim - m0, args.left.vectors, left.data + m0,
                                           [=](int r) { return row_offset(at[r], left.token_stride); });
      load_tile<kTokens, kWidth, kThreads>(tile + Kernel::kTileElements, args.right.dim - n0, args.right.vectors,
                                           right.data + n0,
                                           [=](int r) { return row_offset(at[r], right.token_stride); });
      if constexpr (Math::kColumnBesideTile) {
        if (args.sums != nullptr && n0 == 0 && static_cast<int>(threadIdx.x) < kTokens)
          Math::put_column(tile + Kernel::kTileElements + static_cast<int>(threadIdx.x) * kRowPitch + kWidth,
                           token_weight(at[threadIdx.x]));
      }
    }
    copy_commit();
  };

  T acc[Grid::kM][Grid::kN][4];
  clear(acc);
  T sums[Grid::kM][1][4];
  clear(sums);
  const bool summing = args.sums != nullptr && n0 == 0 && Grid::first_column();
  const float floor = args.feature.floor();

  for (int stage = 0; stage < kStages; ++stage) table.fill(stage, tokens);
  __syncthreads();
  for (int stage = 0; stage < kStages - 1; ++stage) load(stage);
  for (int step = 0; step < steps; ++step) {
    copy_wait<kStages - 2>();
    __syncthreads();
    load(step + kStages - 1);
    table.fill(step + kStages, tokens);
    E* const tile = tiles + step % kStages * 2 * Kernel::kTileElements;
    if (!args.feature.is_floor()) {
      apply_feature<kTokens, kWidth, kThreads>(tile, kWidth, args.feature);
      __syncthreads();
    }
    const auto add_sums = [&](int k, const auto& fragments) {
      if (!summing) return;
      typename Math::Column column;
      if constexpr (Math::kColumnBesideTile) {
        Math::load_column(column, tile + Kernel::kTileElements + kWidth, kRowPitch, k);
      } else {
        column = Math::column([&](int j) { return token_weight(table[step][k + j]); });
      }
#pragma unroll
      for (int i = 0; i < Grid::kM; ++i) Math::mma(sums[i][0], fragments[i], column);
    };
    multiply<Math, true, true, kTokens, kRowPitch, kRowPitch>(acc, tile, Grid::row(), floor,
                                                              tile + Kernel::kTileElements, Grid::column(), add_sums);
  }

  const std::int64_t store_row =
      args.of_queries ? shape.mixed_row(s, head, block) : shape.entry_row(s, head, shape.initial + block);
  const std::int64_t state_row =
      (static_cast<std::int64_t>(s.index) * shape.kv_heads + head) * shape.final_blocks + shape.initial_full + block;
  const std::int64_t initial_row =
      (static_cast<std::int64_t>(s.index) * shape.kv_heads + head) * shape.initial + shape.initial_full;
  const bool continues = shape.filled > 0 && block == 0;

  if (summing) {
#pragma unroll
    for (int i = 0; i < Grid::kM; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const T sum = Math::column_sum(sums[i][0], half);
        const int m = m0 + Grid::row() + i * 16 + half * 8 + (lane_id() >> 2);
        if ((lane_id() & 3) != 0 || m >= shape.key_pad) continue;
        args.sums[store_row * shape.key_pad + m] = m < shape.key_dim ? sum * static_cast<T>(args.sums_factor) : T(0);
        if (args.final_z != nullptr && m < shape.key_dim) {
          const T before = continues ? args.initial_z[initial_row * shape.key_dim + m] : T(0);
          args.final_z[state_row * shape.key_dim + m] = before + sum;
        }
      }
  }
  if (args.final_S != nullptr) {
    for_each(acc, m0 + Grid::row(), n0 + Grid::column(), [&](int m, int n, T value) {
      if (m >= shape.key_dim || n >= shape.value_dim) return;
      const std::int64_t at = static_cast<std::int64_t>(m) * shape.value_dim + n;
      const std::int64_t size = static_cast<std::int64_t>(shape.key_dim) * shape.value_dim;
      const T before = continues ? args.initial_S[initial_row * size + at] : T(0);
      args.final_S[state_row * size + at] = before + value;
    });
  }
  // Features of padding are not zero for every map, and their products may be infinite.
#pragma unroll
  for (int i = 0; i < Grid::kM; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = m0 + Grid::row() + i * 16 + half * 8 + (lane_id() >> 2);
      const auto factor = static_cast<T>(args.factor);
#pragma unroll
      for (int j = 0; j < Grid::kN; ++j)
#pragma unroll
        for (int e = half * 2; e < half * 2 + 2; ++e) acc[i][j][e] = m < shape.key_dim ? acc[i][j][e] * factor : T(0);
    }
  copy_wait<0>();
  __syncthreads();
  put<kRowPitch>(tiles, acc, Grid::row(), Grid::column());
  __syncthreads();
  E* const to = args.store + store_row * shape.matrix_size() + static_cast<std::int64_t>(m0) * shape.value_pad + n0;
  const int rows = shape.key_pad - m0, pitch = shape.value_pad;
  store_tile<kWidth, kWidth, kThreads>(tiles, shape.value_pad - n0, true, to,
                                       [=](int r) { return matrix_row(r, rows, pitch); });
}

}  // namespace

template <typename Math>
void summarize(const SummaryArgs<typename Math::Element>& args, cudaStream_t stream) {
  if constexpr (sizeof(typename Math::Element) == 2)
    if (hopper::summarize(args, stream)) return;
  const Shape& shape = args.shape;
  with_width<Math>(max(shape.key_pad, shape.value_pad), [&](auto width) {
    using Kernel = SummaryKernel<Math, width>;
    const auto tiles = [&](int pad) { return static_cast<unsigned>((pad + width - 1) / width); };
    const int heads = args.of_queries ? shape.heads : shape.kv_heads;
    launch("summary", summary_kernel<Math, width>,
           dim3(static_cast<unsigned>(shape.total_blocks * heads), tiles(shape.key_pad) * tiles(shape.value_pad)),
           Kernel::Grid::kThreads, Kernel::kSharedBytes, stream, args);
  });
}

template void summarize<HalfMath<__nv_bfloat16>>(const SummaryArgs<__nv_bfloat16>&, cudaStream_t);
template void summarize<HalfMath<__half>>(const SummaryArgs<__half>&, cudaStream_t);
template void summarize<Tf32Math>(const SummaryArgs<float>&, cudaStream_t);
template void summarize<ExactMath<float>>(const SummaryArgs<float>&, cudaStream_t);
template void summarize<ExactMath<double>>(const SummaryArgs<double>&, cudaStream_t);

}  // namespace mhla::cuda
