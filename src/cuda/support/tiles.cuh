// Tile sizes per arithmetic: what fits into registers and shared memory.
#pragma once

#include <algorithm>

#include "cuda/support/tile.cuh"

namespace mhla::cuda {

// kWidth: columns of a token tensor that one thread block works on.
template <typename Math, int kWidth>
struct Tiles;

template <typename E>
struct Tiles<HalfMath<E>, 128> {
  using Summary = WarpGrid<128, 128, 4, 2>;
  using Readout = WarpGrid<64, 128, 2, 4>;
  using Pairs = WarpGrid<64, 64, 2, 4>;
  static constexpr int kTokens = 64;  // per stage of the summary
};
template <typename E>
struct Tiles<HalfMath<E>, 64> {
  using Summary = WarpGrid<64, 64, 2, 2>;
  using Readout = WarpGrid<64, 64, 2, 2>;
  using Pairs = WarpGrid<64, 64, 2, 2>;
  static constexpr int kTokens = 64;
};
template <typename E>
struct Tiles<HalfMath<E>, 32> {
  using Summary = WarpGrid<32, 32, 2, 2>;
  using Readout = WarpGrid<64, 32, 4, 1>;
  using Pairs = WarpGrid<64, 64, 2, 2>;
  static constexpr int kTokens = 64;
};
struct SinglePrecisionTiles {
  using Summary = WarpGrid<64, 64, 2, 2>;
  using Readout = WarpGrid<32, 64, 2, 2>;
  using Pairs = WarpGrid<32, 32, 2, 2>;
  static constexpr int kTokens = 32;
};
template <>
struct Tiles<Tf32Math, 64> : SinglePrecisionTiles {};
template <>
struct Tiles<ExactMath<float>, 64> : SinglePrecisionTiles {};
template <>
struct Tiles<ExactMath<double>, 32> {
  using Summary = WarpGrid<32, 32, 2, 2>;
  using Readout = WarpGrid<16, 32, 1, 2>;
  using Pairs = WarpGrid<16, 32, 1, 2>;
  static constexpr int kTokens = 16;
};

// Thread blocks that registers must leave room for on one multiprocessor.
template <typename Math, int kThreads>
inline constexpr int kBlocksPerSM = sizeof(typename Math::Element) == 2 ? 512 / kThreads : 1;

// Calls f with the tile width for tensors of up to `dim` columns, as a std::integral_constant.
template <typename Math, typename F>
void with_width(int dim, F&& f) {
  if constexpr (sizeof(typename Math::Element) == 8) {
    f(std::integral_constant<int, 32>{});
  } else if constexpr (sizeof(typename Math::Element) == 4) {
    f(std::integral_constant<int, 64>{});
  } else if (dim <= 32) {
    f(std::integral_constant<int, 32>{});
  } else if (dim <= 64) {
    f(std::integral_constant<int, 64>{});
  } else {
    f(std::integral_constant<int, 128>{});
  }
}

// Tiles that kernels of this width cut `columns` output columns into, for operands of `depth` padded columns.
template <typename Math>
int column_tiles(int columns, int depth) {
  int tiles = 0;
  with_width<Math>(std::max(columns, std::min(depth, 128)), [&](auto width) { tiles = (columns + width - 1) / width; });
  return tiles;
}

}  // namespace mhla::cuda
