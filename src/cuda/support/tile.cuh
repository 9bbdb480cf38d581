// Tiles in shared memory: copies from and to global memory, products, and the way of accumulators through shared
// memory. A tile of kColumns columns has rows kPitch<E, kColumns> apart.
#pragma once

#include "cuda/support/math.cuh"
#include "cuda/support/pair_feature.cuh"
#include "cuda/support/shape.cuh"

namespace mhla::cuda {

template <typename E>
inline constexpr int kVector = 16 / sizeof(E);  // elements of one 16-byte access

// 16 bytes more than the row keep the rows of a tile on different banks.
template <typename E, int kColumns>
inline constexpr int kPitch = kColumns + kVector<E>;

__device__ inline void copy_async(void* to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ void copy_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// How the threads of a block walk over a tile: piece(r, c) for every 16-byte piece, columns fixed per thread where a
// row has no more pieces than there are threads.
template <int kRows, int kColumns, int kThreads, typename E, typename F>
__device__ void for_each_piece(F&& piece) {
  constexpr int kPerRow = kColumns / kVector<E>;
  if constexpr (kPerRow > kThreads) {
    for (int n = static_cast<int>(threadIdx.x); n < kRows * kPerRow; n += kThreads)
      piece(n / kPerRow, n % kPerRow * kVector<E>);
  } else {
    constexpr int kRowStep = kThreads / kPerRow;
    static_assert(kThreads % kPerRow == 0);
    const int r0 = static_cast<int>(threadIdx.x) / kPerRow;
    const int c = static_cast<int>(threadIdx.x) % kPerRow * kVector<E>;
#pragma unroll
    for (int i = 0; i < (kRows + kRowStep - 1) / kRowStep; ++i) {
      const int r = r0 + i * kRowStep;
      if (kRows % kRowStep == 0 || r < kRows) piece(r, c);
    }
  }
}

// Where a row starts, in elements, and whether there is one.
struct RowOffset {
  std::int64_t at;
  bool valid;
};
// Row r of a matrix with `count` rows `pitch` apart.
__device__ inline RowOffset matrix_row(int r, int count, int pitch) {
  return {static_cast<std::int64_t>(r) * pitch, r < count};
}

// The same in single elements, for rows that do not start on 16-byte borders.
template <int kRows, int kColumns, int kThreads, typename F>
__device__ __noinline__ void for_each_element(F element) {
  for (int n = static_cast<int>(threadIdx.x); n < kRows * kColumns; n += kThreads) element(n / kColumns, n % kColumns);
}

// Starts loading a tile from `base`. offset(r) gives the RowOffset of a row; where there is none it becomes zeros, and
// so do columns from `columns` on. Without `vectors` the copy is done at once.
template <int kRows, int kColumns, int kThreads, typename E, typename Offset>
__device__ void load_tile(E* tile, int columns, bool vectors, const E* base, Offset&& offset) {
  if (vectors) {
    for_each_piece<kRows, kColumns, kThreads, E>([&](int r, int c) {
      const RowOffset row = offset(r);
      copy_async(tile + r * kPitch<E, kColumns> + c, base + row.at + c, row.valid && c < columns);
    });
  } else {
    for_each_element<kRows, kColumns, kThreads>([=](int r, int c) {
      const RowOffset row = offset(r);
      tile[r * kPitch<E, kColumns> + c] = row.valid && c < columns ? base[row.at + c] : E(0.0F);
    });
  }
}

// Writes a tile out, the mirror image of load_tile.
template <int kRows, int kColumns, int kThreads, typename E, typename Offset>
__device__ void store_tile(const E* tile, int columns, bool vectors, E* base, Offset&& offset) {
  if (vectors) {
    for_each_piece<kRows, kColumns, kThreads, E>([&](int r, int c) {
      const RowOffset row = offset(r);
      if (row.valid && c < columns)
        *reinterpret_cast<uint4*>(base + row.at + c) =
            *reinterpret_cast<const uint4*>(tile + r * kPitch<E, kColumns> + c);
    });
  } else {
    for_each_element<kRows, kColumns, kThreads>([=](int r, int c) {
      const RowOffset row = offset(r);
      if (row.valid && c < columns) base[row.at + c] = tile[r * kPitch<E, kColumns> + c];
    });
  }
}

// Where the tokens of the next tiles lie: windows of kRows tokens of a block, computed once and read by every thread
// that loads or stores a piece of their rows. -1 past the end. A window is filled at least one barrier before it is
// read; four are kept.
template <int kRows>
class TokenTable {
 public:
  using Windows = int[4][kRows];
  __device__ explicit TokenTable(Windows& places) : places_(places) {}

  __device__ void fill(int window, const BlockTokens& tokens) {
    for (int r = static_cast<int>(threadIdx.x); r < kRows; r += static_cast<int>(blockDim.x)) {
      const int n = window * kRows + r;
      places_[window & 3][r] = n < tokens.count() ? static_cast<int>(tokens[n]) : -1;
    }
  }
  __device__ const int* operator[](int window) const { return places_[window & 3]; }

 private:
  Windows& places_;
};

// The row of a token for load_tile and store_tile.
__device__ inline RowOffset row_offset(int place, int token_stride) {
  return {static_cast<std::int64_t>(max(place, 0)) * token_stride, place >= 0};
}

// phi over a tile in shared memory, for maps that clamp() does not cover; columns from `columns` on become zeros.
template <int kRows, int kColumns, int kThreads, typename E>
__device__ __noinline__ void apply_feature(E* tile, int columns, const Feature& feature) {
  if constexpr (sizeof(E) == 2) {
    if (PairFeature<E>::covers(feature) && columns >= kColumns) {
      const PairFeature<E> pairs(feature);
      for_each_piece<kRows, kColumns, kThreads, E>([&](int r, int c) {
        auto& piece = reinterpret_cast<std::uint32_t(&)[4]>(tile[r * kPitch<E, kColumns> + c]);
        std::uint32_t values[4] = {piece[0], piece[1], piece[2], piece[3]};
        pairs.apply(values);
        *reinterpret_cast<uint4*>(&piece) = make_uint4(values[0], values[1], values[2], values[3]);
      });
      return;
    }
  }
  for (int n = static_cast<int>(threadIdx.x); n < kRows * kColumns; n += kThreads) {
    const int r = n / kColumns, c = n % kColumns;
    E& e = tile[r * kPitch<E, kColumns> + c];
    e = c < columns ? to_element<E>(feature(to_accumulator(e))) : E(0.0F);
  }
}

// Chains the gradients of a tile through phi: tile *= phi'(raw), raw at the places of the tile's rows.
template <int kRows, int kColumns, int kThreads, typename E>
__device__ void chain_feature(E* tile, int columns, bool vectors, const HeadView<const E>& raw, int column0,
                              const int* places, const Feature& feature) {
  const auto chain = [&](E& value, E input) {
    value = to_element<E>(to_accumulator(value) * feature.derivative(to_accumulator(input)));
  };
  if (feature.map == FeatureMap::identity) return;
  if (vectors) {
    for_each_piece<kRows, kColumns, kThreads, E>([&](int r, int c) {
      if (places[r] < 0 || c >= columns) return;
      const uint4 input = *reinterpret_cast<const uint4*>(raw.row(places[r]) + column0 + c);
      E* const values = tile + r * kPitch<E, kColumns> + c;
      if (feature.map == FeatureMap::relu) {
#pragma unroll
        for (int e = 0; e < kVector<E>; ++e)
          if (!(to_accumulator(reinterpret_cast<const E*>(&input)[e]) > 0)) values[e] = E(0.0F);
      } else {
#pragma unroll 1
        for (int e = 0; e < kVector<E>; ++e) chain(values[e], reinterpret_cast<const E*>(&input)[e]);
      }
    });
  } else {
    for (int n = static_cast<int>(threadIdx.x); n < kRows * kColumns; n += kThreads) {
      const int r = n / kColumns, c = n % kColumns;
      if (places[r] >= 0 && c < columns) chain(tile[r * kPitch<E, kColumns> + c], raw.row(places[r])[column0 + c]);
    }
  }
  __syncthreads();
}

struct NoFloor {};  // A as it is

// max(x, floor) over a tile in shared memory.
template <int kRows, int kColumns, int kThreads, typename E>
__device__ void clamp_tile(E* tile, float floor) {
  for_each_piece<kRows, kColumns, kThreads, E>([&](int r, int c) {
    E* const at = tile + r * kPitch<E, kColumns> + c;
    if constexpr (sizeof(E) == 2) {
      uint4 piece = *reinterpret_cast<const uint4*>(at);
      typename HalfMath<E>::A fragment{{piece.x, piece.y, piece.z, piece.w}};
      HalfMath<E>::clamp(fragment, floor);
      *reinterpret_cast<uint4*>(at) = make_uint4(fragment.r[0], fragment.r[1], fragment.r[2], fragment.r[3]);
    } else {
#pragma unroll
      for (int e = 0; e < kVector<E>; ++e) at[e] = at[e] < E(floor) ? E(floor) : at[e];
    }
  });
}

// phi over a tile, whatever it is.
template <int kRows, int kColumns, int kThreads, typename E>
__device__ void apply_any_feature(E* tile, int columns, const Feature& feature) {
  if (!feature.is_floor()) {
    apply_feature<kRows, kColumns, kThreads>(tile, columns, feature);
  } else if (feature.floor() != -INFINITY) {
    clamp_tile<kRows, kColumns, kThreads>(tile, feature.floor());
  }
}

// acc += max(A, floor) max(B, floor_b) over k in [0, kDepth), for the kM x kN tiles of 16 x 8 at (m, n).
// extra(k, fragments) sees every set of A fragments on the way.
template <typename Math, bool kTransposedA, bool kTransposedB, int kDepth, int kPitchA, int kPitchB, int kM, int kN,
          typename E, typename T, typename Floor, typename Extra>
__device__ void multiply(T (&acc)[kM][kN][4], const E* a, int m, Floor floor, const E* b, int n, Extra&& extra,
                         float floor_b = -INFINITY) {
  static_assert(kN % 2 == 0 && kDepth % Math::kStep == 0);
#pragma unroll
  for (int k = 0; k < kDepth; k += Math::kStep) {
    typename Math::A fa[kM];
#pragma unroll
    for (int i = 0; i < kM; ++i) {
      Math::template load_a<kTransposedA>(fa[i], a, kPitchA, m + i * 16, k);
      if constexpr (!std::is_same_v<Floor, NoFloor>) Math::clamp(fa[i], floor);
    }
    extra(k, fa);
#pragma unroll
    for (int j = 0; j < kN; j += 2) {
      typename Math::B fb[2];
      Math::template load_b<kTransposedB>(fb, b, kPitchB, n + j * 8, k);
      if (floor_b != -INFINITY) {
        Math::clamp(fb[0], floor_b);
        Math::clamp(fb[1], floor_b);
      }
#pragma unroll
      for (int i = 0; i < kM; ++i) {
        Math::mma(acc[i][j], fa[i], fb[0]);
        Math::mma(acc[i][j + 1], fa[i], fb[1]);
      }
    }
  }
}
struct NoExtra {
  template <typename A>
  __device__ void operator()(int, const A&) const {}
};

// Calls f(row, column, value&) for every accumulator of a warp tile at (m, n).
template <int kM, int kN, typename T, typename F>
__device__ void for_each(T (&acc)[kM][kN][4], int m, int n, F&& f) {
  const int row = m + (lane_id() >> 2), column = n + (lane_id() & 3) * 2;
#pragma unroll
  for (int i = 0; i < kM; ++i)
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) f(row + i * 16 + (e >> 1) * 8, column + j * 8 + (e & 1), acc[i][j][e]);
}

template <int kM, int kN, typename T>
__device__ void clear(T (&acc)[kM][kN][4]) {
#pragma unroll
  for (int i = 0; i < kM; ++i)
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[i][j][e] = T(0);
}

// Accumulators, rounded to elements, into a tile.
template <int kPitch, typename E, int kM, int kN, typename T>
__device__ void put(E* tile, T (&acc)[kM][kN][4], int m, int n) {
  const int row = m + (lane_id() >> 2), column = n + (lane_id() & 3) * 2;
#pragma unroll
  for (int i = 0; i < kM; ++i)
#pragma unroll
    for (int j = 0; j < kN; ++j)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        E* to = tile + (row + i * 16 + half * 8) * kPitch + column + j * 8;
        if constexpr (sizeof(E) == 2) {
          E pair[2] = {to_element<E>(acc[i][j][half * 2]), to_element<E>(acc[i][j][half * 2 + 1])};
          *reinterpret_cast<std::uint32_t*>(to) = *reinterpret_cast<const std::uint32_t*>(pair);
        } else {
          to[0] = acc[i][j][half * 2];
          to[1] = acc[i][j][half * 2 + 1];
        }
      }
}

// How the warps of a block share a kRows x kColumns tile of accumulators.
template <int kRows_, int kColumns_, int kWarpRows, int kWarpColumns>
struct WarpGrid {
  static constexpr int kRows = kRows_, kColumns = kColumns_;
  static constexpr int kWarps = kWarpRows * kWarpColumns;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kM = kRows / kWarpRows / 16;       // 16-row tiles of a warp
  static constexpr int kN = kColumns / kWarpColumns / 8;  // 8-column tiles of a warp
  static_assert(kM * kWarpRows * 16 == kRows && kN * kWarpColumns * 8 == kColumns && kN % 2 == 0);
  __device__ static int row() { return static_cast<int>(threadIdx.x / 32) / kWarpColumns * kM * 16; }
  __device__ static int column() { return static_cast<int>(threadIdx.x / 32) % kWarpColumns * kN * 8; }
  __device__ static bool first_column() { return static_cast<int>(threadIdx.x / 32) % kWarpColumns == 0; }
};

}  // namespace mhla::cuda
