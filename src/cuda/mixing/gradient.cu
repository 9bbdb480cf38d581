// The mixing gradient: one product per (sequence, head), its contraction over Dk x Dv split among thread blocks, then
// one ordered sum over splits and over the sequences and heads of a matrix.
#include <algorithm>

#include "cuda/mixing/mixing.hpp"
#include "cuda/mixing/mixing_sm90.hpp"
#include "cuda/support/launch.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda {
namespace {

constexpr int kSplitTarget = 512;  // thread blocks that keep a large device busy

struct Split {
  int parts;
  int depth;  // of one part, a multiple of 64
  int rows, columns;
  std::int64_t unit_size() const { return static_cast<std::int64_t>(parts) * rows * columns; }
};

Split split_of(const Shape& shape, int most_blocks) {
  const auto size = static_cast<int>(shape.matrix_size());
  const int rows = most_blocks, columns = most_blocks + shape.initial;
  const std::int64_t tiles =
      static_cast<std::int64_t>(shape.sequences) * shape.heads * ((rows + 63) / 64) * ((columns + 63) / 64);
  const auto wanted =
      static_cast<int>(std::clamp<std::int64_t>(kSplitTarget / std::max<std::int64_t>(tiles, 1), 1, 64));
  const int depth = ((size + wanted - 1) / wanted + 63) / 64 * 64;
  return {(size + depth - 1) / depth, depth, rows, columns};
}

template <typename Math>
struct GradientKernel {
  using E = typename Math::Element;
  using Grid = WarpGrid<64, 64, 2, 2>;
  static constexpr int kDepth = 128 / sizeof(E);
  static constexpr int kTileElements = 64 * kPitch<E, kDepth>;
  static constexpr int kStageElements = 2 * kTileElements;
  static constexpr std::size_t kSharedBytes = 2 * kStageElements * sizeof(E);
};

template <typename Math>
__global__ __launch_bounds__(128, kBlocksPerSM<Math, 128>) void gradient_kernel(
    const __grid_constant__ MixingGradientArgs<typename Math::Element> args, Split split, int row_tiles,
    int column_tiles) {
  using Kernel = GradientKernel<Math>;
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  using Grid = typename Kernel::Grid;
  constexpr int kDepth = Kernel::kDepth, kRowPitch = kPitch<E, kDepth>;
  extern __shared__ __align__(16) unsigned char shared[];
  E* const tiles = reinterpret_cast<E*>(shared);

  const Shape& shape = args.shape;
  int at = static_cast<int>(blockIdx.x);
  const int column0 = at % column_tiles * 64;
  at /= column_tiles;
  const int row0 = at % row_tiles * 64;
  at /= row_tiles;
  const int part = at % split.parts;
  const int unit = at / split.parts;
  const SequenceRow s = shape.sequence(unit / shape.heads);
  const int head = unit % shape.heads;
  const int entries = shape.entries(s);
  const auto size = static_cast<int>(shape.matrix_size());
  const int begin = part * split.depth;
  const int end = min(size, begin + split.depth);
  const std::int64_t d_mixed = shape.mixed_row(s, head, 0);
  const std::int64_t S = shape.entry_row(s, head / (shape.heads / shape.kv_heads), 0);

  const auto load = [&](int step) {
    const int x = begin + step * kDepth;
    if (x < end) {
      E* const tile = tiles + (step & 1) * Kernel::kStageElements;
      const auto rows = [=](int first, int count) { return [=](int r) { return matrix_row(r, count - first, size); }; };
      load_tile<64, kDepth, 128>(tile, end - x, true, args.d_mixed + (d_mixed + row0) * size + x, rows(row0, s.blocks));
      load_tile<64, kDepth, 128>(tile + Kernel::kTileElements, end - x, true, args.S + (S + column0) * size + x,
                                 rows(column0, entries));
    }
    copy_commit();
  };

  T acc[Grid::kM][Grid::kN][4];
  clear(acc);
  const bool visible = shape.masking == Masking::none || column0 - shape.initial < row0 + 64;
  if (visible) {
    load(0);
    for (int step = 0; begin + step * kDepth < end; ++step) {
      load(step + 1);
      copy_wait<1>();
      __syncthreads();
      const E* const tile = tiles + (step & 1) * Kernel::kStageElements;
      multiply<Math, false, false, kDepth, kRowPitch, kRowPitch>(
          acc, tile, Grid::row(), NoFloor{}, tile + Kernel::kTileElements, Grid::column(), NoExtra{});
      __syncthreads();
    }
    copy_wait<0>();
  }
  const int z_part = (shape.key_dim + split.parts - 1) / split.parts;
  const int z_begin = min(shape.key_dim, part * z_part), z_end = min(shape.key_dim, z_begin + z_part);
  T* const to = args.partial + (static_cast<std::int64_t>(unit) * split.parts + part) * split.rows * split.columns;
  for_each(acc, row0 + Grid::row(), column0 + Grid::column(), [&](int i, int e, T value) {
    if (i >= split.rows || e >= split.columns) return;
    value *= static_cast<T>(args.factor);
    if (i >= s.blocks || e >= entries || !shape.sees(i, e)) {
      value = 0;
    } else if (args.z != nullptr) {
      for (int d = z_begin; d < z_end; ++d)
        value += args.d_mixed_z[(d_mixed + i) * shape.key_pad + d] * args.z[(S + e) * shape.key_pad + d];
    }
    to[static_cast<std::int64_t>(i) * split.columns + e] = value;
  });
}

// One warp per element of d_mixing; one thread where its matrix is that of one (sequence, head) alone.
constexpr int kSumThreads = 256;
inline int sum_lanes(const Shape& shape) { return shape.row_matrices > 0 ? 1 : 32; }

template <typename E>
__global__ void sum_kernel(const __grid_constant__ MixingGradientArgs<E> args, Split split, int lanes) {
  using T = Accumulator<E>;
  const Shape& shape = args.shape;
  const std::int64_t M = shape.mixing_blocks;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * kSumThreads + threadIdx.x;
  const std::int64_t element = lanes == 1 ? thread : thread / 32;
  const int lane = lanes == 1 ? 0 : lane_id();
  if (element >= shape.matrices * M * M) return;
  const auto column = static_cast<int>(element % M);
  const auto row = static_cast<int>(element / M % M);
  const auto matrix = static_cast<int>(element / (M * M));
  const int block = row - shape.initial_full;

  T sum = 0;
  for (int n = lane; n < shape.sequences * shape.heads / shape.matrices; n += lanes) {
    const int unit = n * shape.matrices + matrix;
    const SequenceRow s = shape.sequence(unit / shape.heads);
    if (block < 0 || block >= s.blocks) continue;
    const auto add = [&](int entry) {
      if (entry < 0 || entry >= shape.entries(s)) return;
      for (int part = 0; part < split.parts; ++part)
        sum +=
            args.partial[((static_cast<std::int64_t>(unit) * split.parts + part) * split.rows + block) * split.columns +
                         entry];
    };
    if (column < shape.initial) add(column);
    if (column >= shape.initial_full) add(shape.initial + column - shape.initial_full);
    if (args.diagonal != nullptr && row == column) {
      const std::int64_t at = shape.mixed_row(s, unit % shape.heads, block);
      for (int part = 0; part < args.diagonal_parts; ++part) sum += args.diagonal[at * args.diagonal_parts + part];
    }
    if (args.pairs != nullptr) sum += args.pairs[(unit * M + row) * M + column];
  }
  for (int offset = lanes / 2; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  if (lane == 0) args.d_mixing[element] = sum;
}

}  // namespace

std::size_t mixing_gradient_workspace(const Shape& shape, int most_blocks) {
  const std::int64_t portable = split_of(shape, most_blocks).unit_size() * shape.sequences * shape.heads;
  return static_cast<std::size_t>(std::max(portable, hopper::mixing_gradient_workspace(shape)));
}

template <typename Math>
void mixing_gradient(const MixingGradientArgs<typename Math::Element>& args, int most_blocks, cudaStream_t stream) {
  using E = typename Math::Element;
  if constexpr (sizeof(E) == 2)
    if (hopper::mixing_gradient(args, stream)) return;
  const Shape& shape = args.shape;
  const Split split = split_of(shape, most_blocks);
  const int row_tiles = (split.rows + 63) / 64, column_tiles = (split.columns + 63) / 64;
  const std::int64_t tiles = std::int64_t{row_tiles} * column_tiles * split.parts;
  launch("mixing gradient", gradient_kernel<Math>, grid_of("mixing gradient", tiles * shape.sequences * shape.heads),
         128, GradientKernel<Math>::kSharedBytes, stream, args, split, row_tiles, column_tiles);
  constexpr const char* kSum = "mixing gradient sum";
  const std::int64_t M = shape.mixing_blocks, threads = shape.matrices * M * M * sum_lanes(shape);
  launch(kSum, sum_kernel<E>, grid_of(kSum, (threads + kSumThreads - 1) / kSumThreads), kSumThreads, 0, stream, args,
         split, sum_lanes(shape));
}

#define MHLA_INSTANTIATE(MATH) \
  template void mixing_gradient<MATH>(const MixingGradientArgs<typename MATH::Element>&, int, cudaStream_t);
MHLA_INSTANTIATE(HalfMath<__nv_bfloat16>)
MHLA_INSTANTIATE(HalfMath<__half>)
MHLA_INSTANTIATE(Tf32Math)
MHLA_INSTANTIATE(ExactMath<float>)
MHLA_INSTANTIATE(ExactMath<double>)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
