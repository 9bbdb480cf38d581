// Two kernels for one product. The stepped one walks the entries in steps, for any type and any number of blocks. The
// resident one keeps all weights of a head in shared memory and streams columns of S past them, for two-byte elements
// and up to 256 blocks.
#include <algorithm>

#include "cuda/mixing/mixing.hpp"
#include "cuda/mixing/mixing_sm90.hpp"
#include "cuda/mixing/unit.cuh"
#include "cuda/support/launch.hpp"
#include "cuda/support/tiles.cuh"

namespace mhla::cuda {
namespace {

constexpr int kWeightThreads = 128;

// One thread block per row; rows of different matrices follow each other.
template <typename E>
__global__ void weights_kernel(const __grid_constant__ Shape shape, E* weights, int rows, int columns) {
  using T = Accumulator<E>;
  const int matrix = static_cast<int>(blockIdx.x) / rows, i = static_cast<int>(blockIdx.x) % rows;
  E* const to = weights + static_cast<std::int64_t>(blockIdx.x) * columns;
  for (int e = static_cast<int>(threadIdx.x); e < columns; e += kWeightThreads) {
    const bool inside = i < shape.uniform.blocks && e < shape.initial + shape.uniform.blocks;
    to[e] = to_element<E>(inside ? shape.mixing_weight<T>(matrix, i, e) : T(0));
  }
}

// What the adjoint does with the gradient of one entry beside storing it.
template <typename E>
struct StateGradient {
  using T = Accumulator<E>;
  const MixingArgs<E>& args;
  std::int64_t head;  // of all sequences

  __device__ bool wanted() const { return args.d_final_S != nullptr || args.d_initial_S != nullptr; }
  __device__ void visit(int entry, int x, T& value) const {
    const Shape& shape = args.shape;
    const int m = x / shape.value_pad, n = x % shape.value_pad;
    if (m >= shape.key_dim || n >= shape.value_dim) return;
    const auto at = [&](int blocks, int block) {
      return ((head * blocks + block) * shape.key_dim + m) * shape.value_dim + n;
    };
    if (args.d_final_S != nullptr) value += args.d_final_S[at(shape.final_blocks, shape.entry_block(entry))];
    if (args.d_initial_S != nullptr && entry < shape.initial) args.d_initial_S[at(shape.initial, entry)] = value;
  }
};

// Zero weights do not hide infinities and NaNs of entries a block must not see. Where a causal result is not finite it
// is summed again over what is seen, straight from memory.
template <bool kAdjoint, int kM, int kN, typename E, typename T>
__device__ void hide_unseen(T (&acc)[kM][kN][4], const MixingArgs<E>& args, const Unit<kAdjoint>& unit, int row0,
                            int column0) {
  const Shape& shape = args.shape;
  if (shape.masking == Masking::none) return;
  T zero = 0;
  for_each(acc, 0, 0, [&](int, int, T value) { zero += value * T(0); });
  if (zero == T(0)) return;
  const auto size = static_cast<int>(shape.matrix_size());
  const int group = kAdjoint ? shape.heads / shape.kv_heads : 1;
  for_each(acc, row0, column0, [&](int row, int x, T& value) {
    if (row >= unit.rows || x >= size) return;
    value = 0;
    for (int h = 0; h < group; ++h)
      for (int k = 0; k < unit.depth; ++k) {
        const int block = kAdjoint ? k : row, entry = kAdjoint ? row : k;
        if (!shape.sees(block, entry)) continue;
        const int matrix = shape.matrix(unit.s.index, kAdjoint ? unit.head * group + h : unit.head);
        const std::int64_t at = unit.from + static_cast<std::int64_t>(h) * (kAdjoint ? unit.s.blocks : 0) + k;
        value += to_accumulator(to_element<E>(shape.mixing_weight<T>(matrix, block, entry))) *
                 to_accumulator(args.from[at * size + x]);
      }
  });
}

template <typename Math>
struct SteppedKernel {
  using E = typename Math::Element;
  using Grid = std::conditional_t<sizeof(E) == 2, WarpGrid<128, 128, 2, 4>, WarpGrid<32, 64, 2, 2>>;
  static constexpr int kDepth = sizeof(E) == 2 ? 32 : 16;
  template <bool kAdjoint>
  static constexpr int kWeightPitch = kAdjoint ? kPitch<E, Grid::kRows> : kPitch<E, kDepth>;
  static constexpr int kWeights = Grid::kRows * kPitch<E, kDepth> > kDepth* kPitch<E, Grid::kRows>
                                      ? Grid::kRows* kPitch<E, kDepth>
                                      : kDepth* kPitch<E, Grid::kRows>;
  static constexpr int kStage = kWeights + kDepth * kPitch<E, Grid::kColumns>;
  static constexpr int kOut = Grid::kRows * kPitch<E, Grid::kColumns>;
  static constexpr std::size_t kSharedBytes = sizeof(E) * (2 * kStage > kOut ? 2 * kStage : kOut);
};

template <typename Math, bool kAdjoint>
__global__ __launch_bounds__(
    SteppedKernel<Math>::Grid::kThreads,
    kBlocksPerSM<Math, SteppedKernel<Math>::Grid::kThreads>) void stepped_kernel(const __grid_constant__
                                                                                     MixingArgs<typename Math::Element>
                                                                                         args,
                                                                                 int column_tiles) {
  using Kernel = SteppedKernel<Math>;
  using Grid = typename Kernel::Grid;
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  constexpr int kDepth = Kernel::kDepth, kThreads = Grid::kThreads, kColumns = Grid::kColumns;
  extern __shared__ __align__(16) unsigned char shared[];
  E* const tiles = reinterpret_cast<E*>(shared);

  const Shape& shape = args.shape;
  const Unit<kAdjoint> unit(shape, static_cast<int>(blockIdx.x) / column_tiles);
  const int row0 = static_cast<int>(blockIdx.y) * Grid::kRows;
  if (row0 >= unit.rows) return;
  const int column0 = static_cast<int>(blockIdx.x) % column_tiles * kColumns;
  const auto size = static_cast<int>(shape.matrix_size());
  const int weight_rows = (shape.uniform.blocks + 15) / 16 * 16;
  const int weight_columns = (shape.initial + shape.uniform.blocks + 15) / 16 * 16;
  const int first = unit.first(shape, row0) / kDepth;
  const int per_head = (unit.last(shape, row0, Grid::kRows) + kDepth - 1) / kDepth - first;
  const int group = kAdjoint ? shape.heads / shape.kv_heads : 1;
  const int steps = per_head * group;  // the adjoint sums over the query heads of a kv head

  const auto load = [&](int step) {
    if (step < steps) {
      E* const weights = tiles + (step & 1) * Kernel::kStage;
      const int h = step / per_head;
      const int k0 = (first + step % per_head) * kDepth;
      const int query_head = kAdjoint ? unit.head * group + h : unit.head;
      const E* const from = args.weights + static_cast<std::int64_t>(shape.matrix(unit.s.index, query_head)) *
                                               weight_rows * weight_columns;
      const auto rows = [](int count, int pitch) { return [=](int r) { return matrix_row(r, count, pitch); }; };
      const std::int64_t pitch = weight_columns;
      if constexpr (kAdjoint) {
        load_tile<kDepth, Grid::kRows, kThreads>(weights, weight_columns - row0, true, from + k0 * pitch + row0,
                                                 rows(weight_rows - k0, weight_columns));
      } else {
        load_tile<Grid::kRows, kDepth, kThreads>(weights, weight_columns - k0, true, from + row0 * pitch + k0,
                                                 rows(weight_rows - row0, weight_columns));
      }
      const std::int64_t source = unit.from + (kAdjoint ? static_cast<std::int64_t>(h) * unit.s.blocks : 0);
      load_tile<kDepth, kColumns, kThreads>(weights + Kernel::kWeights, size - column0, true,
                                            args.from + (source + k0) * size + column0, rows(unit.depth - k0, size));
    }
    copy_commit();
  };

  T acc[Grid::kM][Grid::kN][4];
  clear(acc);
  load(0);
  for (int step = 0; step < steps; ++step) {
    load(step + 1);
    copy_wait<1>();
    __syncthreads();
    const E* const weights = tiles + (step & 1) * Kernel::kStage;
    multiply<Math, kAdjoint, true, kDepth, Kernel::template kWeightPitch<kAdjoint>, kPitch<E, kColumns>>(
        acc, weights, Grid::row(), NoFloor{}, weights + Kernel::kWeights, Grid::column(), NoExtra{});
    __syncthreads();
  }
  copy_wait<0>();
  hide_unseen<kAdjoint>(acc, args, unit, row0 + Grid::row(), column0 + Grid::column());

  if constexpr (kAdjoint) {
    const StateGradient<E> state{args, static_cast<std::int64_t>(unit.s.index) * shape.kv_heads + unit.head};
    if (state.wanted()) {
      for_each(acc, row0 + Grid::row(), column0 + Grid::column(), [&](int row, int x, T& value) {
        if (row < unit.rows && x < size) state.visit(row, x, value);
      });
    }
  }
  put<kPitch<E, kColumns>>(tiles, acc, Grid::row(), Grid::column());
  __syncthreads();
  const int left = unit.rows - row0;
  store_tile<Grid::kRows, kColumns, kThreads>(tiles, size - column0, true, args.to + (unit.to + row0) * size + column0,
                                              [=](int r) { return matrix_row(r, left, size); });
}

// kM 16-row tiles and kN 8-column tiles per warp, kWarpRows x kWarpColumns warps.
template <int kM_, int kN_, int kWarpRows_, int kWarpColumns>
struct ResidentGrid {
  static constexpr int kM = kM_, kN = kN_, kWarpRows = kWarpRows_;
  static constexpr int kThreads = kWarpRows * kWarpColumns * 32;
  static constexpr int kRows = kM * kWarpRows * 16;
  static constexpr int kColumns = kN * kWarpColumns * 8;
};

template <typename E, typename Grid>
std::size_t resident_bytes(int weight_rows, int weight_columns, int depth) {
  const int rows = std::max(Grid::kRows, (depth + 15) / 16 * 16);
  return sizeof(E) *
         static_cast<std::size_t>(weight_rows * (weight_columns + 8) + 2 * rows * kPitch<E, Grid::kColumns>);
}

template <typename Math, typename Grid, bool kAdjoint>
__global__ __launch_bounds__(Grid::kThreads, 512 / Grid::kThreads) void resident_kernel(
    const __grid_constant__ MixingArgs<typename Math::Element> args, int column_tiles, int parts) {
  using E = typename Math::Element;
  using T = typename Math::Accumulator;
  constexpr int kM = Grid::kM, kN = Grid::kN, kColumns = Grid::kColumns, kThreads = Grid::kThreads;
  constexpr int kRowPitch = kPitch<E, kColumns>;
  extern __shared__ __align__(16) unsigned char shared[];

  const Shape& shape = args.shape;
  const Unit<kAdjoint> unit(shape, static_cast<int>(blockIdx.x) / parts);
  // Thread blocks of one unit take turns, so that those running together share rows of memory.
  const int first_tile = static_cast<int>(blockIdx.x) % parts;
  const auto size = static_cast<int>(shape.matrix_size());
  const int weight_rows = (shape.uniform.blocks + 15) / 16 * 16;
  const int weight_columns = (shape.initial + shape.uniform.blocks + 15) / 16 * 16;
  const int pitch = weight_columns + 8;
  const int depth = kAdjoint ? weight_rows : weight_columns;
  E* const weights = reinterpret_cast<E*>(shared);
  E* const tiles = weights + weight_rows * pitch;
  const int tile_elements = max(Grid::kRows, depth) * kRowPitch;

  {
    const E* const from =
        args.weights + static_cast<std::int64_t>(shape.matrix(unit.s.index, unit.head)) * weight_rows * weight_columns;
    const int per_row = weight_columns / 8;
    for (int n = static_cast<int>(threadIdx.x); n < weight_rows * per_row; n += kThreads) {
      const int r = n / per_row, c = (n - r * per_row) * 8;
      copy_async(weights + r * pitch + c, from + r * weight_columns + c, true);
    }
  }
  constexpr int kPerRow = kColumns / 8;
  const int r0 = static_cast<int>(threadIdx.x) / kPerRow, c0 = static_cast<int>(threadIdx.x) % kPerRow * 8;
  const auto load = [&](int tile, int stage) {
    if (tile < column_tiles) {
      E* const to = tiles + stage * tile_elements + c0;
      const int x = tile * kColumns + c0;
      const E* const from = args.from + unit.from * size + x;
#pragma unroll 4
      for (int k = r0; k < depth; k += kThreads / kPerRow) {
        const bool valid = k < unit.depth && x < size;
        copy_async(to + k * kRowPitch, valid ? from + static_cast<std::int64_t>(k) * size : args.from, valid);
      }
    }
    copy_commit();
  };

  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int row = warp % Grid::kWarpRows * kM * 16, column = warp / Grid::kWarpRows * kN * 8;
  const int k_first = unit.first(shape, row) / 16 * 16;
  const int k_last = min(depth, unit.last(shape, row, kM * 16));
  load(first_tile, 0);
  int stage = 0;
  for (int tile = first_tile; tile < column_tiles; tile += parts, stage ^= 1) {
    copy_wait<0>();
    __syncthreads();
    load(tile + parts, stage ^ 1);
    E* const in = tiles + stage * tile_elements;
    T acc[kM][kN][4];
    clear(acc);
#pragma unroll 2
    for (int k = k_first; k < k_last; k += 16) {
      typename Math::A fa[kM];
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        const int m = min(row + i * 16, (kAdjoint ? weight_columns : weight_rows) - 16);
        Math::template load_a<kAdjoint>(fa[i], weights, pitch, m, k);
      }
#pragma unroll
      for (int j = 0; j < kN; j += 2) {
        typename Math::B fb[2];
        Math::template load_b<true>(fb, in, kRowPitch, column + j * 8, k);
#pragma unroll
        for (int i = 0; i < kM; ++i) {
          Math::mma(acc[i][j], fa[i], fb[0]);
          Math::mma(acc[i][j + 1], fa[i], fb[1]);
        }
      }
    }
    hide_unseen<kAdjoint>(acc, args, unit, row, tile * kColumns + column);
    if constexpr (kAdjoint) {
      const StateGradient<E> state{args, static_cast<std::int64_t>(unit.s.index) * shape.kv_heads + unit.head};
      if (state.wanted()) {
        for_each(acc, row, tile * kColumns + column, [&](int entry, int x, T& value) {
          if (entry < unit.rows && x < size) state.visit(entry, x, value);
        });
      }
    }
    __syncthreads();
    put<kRowPitch>(in, acc, row, column);
    __syncthreads();
    const int x = tile * kColumns + c0;
    E* const to = args.to + unit.to * size + x;
    for (int r = r0; x < size && r < unit.rows; r += kThreads / kPerRow)
      *reinterpret_cast<uint4*>(to + static_cast<std::int64_t>(r) * size) =
          *reinterpret_cast<const uint4*>(in + r * kRowPitch + c0);
  }
}

template <typename Math, bool kAdjoint>
void launch_mixing(const MixingArgs<typename Math::Element>& args, cudaStream_t stream) {
  using E = typename Math::Element;
  const Shape& shape = args.shape;
  const int rows = shape.uniform.blocks + (kAdjoint ? shape.initial : 0);
  const int depth = shape.uniform.blocks + (kAdjoint ? 0 : shape.initial);
  const auto units = static_cast<unsigned>(shape.sequences * (kAdjoint ? shape.kv_heads : shape.heads));
  const auto size = static_cast<int>(shape.matrix_size());

  const auto stepped = [&] {
    using Grid = typename SteppedKernel<Math>::Grid;
    const int column_tiles = (size + Grid::kColumns - 1) / Grid::kColumns;
    launch("mixing", stepped_kernel<Math, kAdjoint>,
           grid_of("mixing", std::int64_t{units} * column_tiles, (rows + Grid::kRows - 1) / Grid::kRows),
           Grid::kThreads, SteppedKernel<Math>::kSharedBytes, stream, args, column_tiles);
  };
  const auto resident = [&]<typename Grid>(Grid) {
    const int column_tiles = (size + Grid::kColumns - 1) / Grid::kColumns;
    constexpr int kBlocks = 512;  // fill a large device with some to spare
    const int parts = std::clamp((kBlocks + static_cast<int>(units) - 1) / static_cast<int>(units), 1, column_tiles);
    launch("mixing", resident_kernel<Math, Grid, kAdjoint>, dim3(units * static_cast<unsigned>(parts)), Grid::kThreads,
           resident_bytes<E, Grid>(weight_rows(shape), weight_columns(shape), depth), stream, args, column_tiles,
           parts);
  };
  const auto resident_where_it_fits = [&] {
    if (rows > 256 || depth > 256 || (kAdjoint && shape.heads != shape.kv_heads)) {
      stepped();
    } else if (rows <= 16) {
      resident(ResidentGrid<1, 4, 1, 8>{});
    } else if (rows <= 32) {
      resident(ResidentGrid<2, 4, 1, 8>{});
    } else if (rows <= 64) {
      resident(ResidentGrid<2, 4, 2, 4>{});
    } else if (rows <= 128) {
      resident(ResidentGrid<4, 2, 2, 4>{});
    } else if (rows <= 160) {
      resident(ResidentGrid<5, 2, 2, 4>{});
    } else {
      resident(ResidentGrid<4, 2, 4, 4>{});
    }
  };
  if (depth == 0 || rows == 0) {
    if (rows > 0) stepped();
  } else if constexpr (sizeof(E) == 2) {
    if (!hopper::mix<E, kAdjoint>(args, stream)) resident_where_it_fits();
  } else {
    stepped();
  }
  if (args.sums_to != nullptr) mix_sums<E, kAdjoint>(args, stream);
}

}  // namespace

template <typename E>
void write_weights(const Shape& shape, E* weights, cudaStream_t stream) {
  const int rows = weight_rows(shape), columns = weight_columns(shape);
  constexpr const char* kName = "mixing weights";
  launch(kName, weights_kernel<E>, grid_of(kName, std::int64_t{rows} * shape.matrices), kWeightThreads, 0, stream,
         shape, weights, rows, columns);
}

template <typename Math>
void mix(const MixingArgs<typename Math::Element>& args, cudaStream_t stream) {
  launch_mixing<Math, false>(args, stream);
}
template <typename Math>
void mix_adjoint(const MixingArgs<typename Math::Element>& args, cudaStream_t stream) {
  launch_mixing<Math, true>(args, stream);
}

template void write_weights<__nv_bfloat16>(const Shape&, __nv_bfloat16*, cudaStream_t);
template void write_weights<__half>(const Shape&, __half*, cudaStream_t);
template void write_weights<float>(const Shape&, float*, cudaStream_t);
template void write_weights<double>(const Shape&, double*, cudaStream_t);
#define MHLA_INSTANTIATE(MATH)                                                      \
  template void mix<MATH>(const MixingArgs<typename MATH::Element>&, cudaStream_t); \
  template void mix_adjoint<MATH>(const MixingArgs<typename MATH::Element>&, cudaStream_t);
MHLA_INSTANTIATE(HalfMath<__nv_bfloat16>)
MHLA_INSTANTIATE(HalfMath<__half>)
MHLA_INSTANTIATE(Tf32Math)
MHLA_INSTANTIATE(ExactMath<float>)
MHLA_INSTANTIATE(ExactMath<double>)
#undef MHLA_INSTANTIATE

}  // namespace mhla::cuda
