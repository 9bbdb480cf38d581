// Matrix products on cached operands: C[m, n] (+)= sum_k A[k, m] B[k, n].
//
// C is covered by register tiles of up to kTileRows x kTileVectors vectors; a step along k loads the vectors of B and
// broadcasts each element of A, so that with 14 x 2 accumulators (AVX-512) 16 loads feed 28 multiply-adds. Row counts
// are split evenly: 64 rows are five tiles of 13, not four of 14 and a slow one of 8.
#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "cpu/kernels/simd.hpp"
#include "cpu/kernels/table.hpp"

namespace mhla::cpu::MHLA_ISA {
namespace {

enum class Order { k_major, rows };

// Where the rows of B lie: `ldb` apart, or anywhere.
template <typename T>
struct EvenRows {
  const T* row;
  std::int64_t ld;
  const T* next() {
    const T* now = row;
    row += ld;
    return now;
  }
};
template <typename T>
struct ListedRows {
  const T* const* rows;
  std::int64_t column;
  const T* next() { return *rows++ + column; }
};

template <typename T, int MR, int NV, Order order, Steps steps, typename RowsOfB>
void product_tile(const Product<T>& p, std::int64_t row, std::int64_t column) {
  using V = Vector<T>;
  const std::int64_t step_of_a = order == Order::k_major ? p.lda : 1;
  const std::int64_t skipped = steps == Steps::shrinking ? row : 0;
  const T* a = p.a + (order == Order::k_major ? row : row * kTileStride<T>)+skipped * step_of_a;
  T* c = p.c + row * p.ldc + column;
  RowsOfB rows_of_b = [&] {
    if constexpr (std::is_same_v<RowsOfB, ListedRows<T>>)
      return ListedRows<T>{p.b_rows, column};
    else
      return EvenRows<T>{p.b + skipped * p.ldb + column, p.ldb};
  }();
  // Unrolled, these loops leave the accumulators in registers; otherwise every tile copies them to the stack and back.
  V acc[MR * NV];
#pragma GCC unroll 32
  for (int i = 0; i < MR * NV; ++i) acc[i] = p.accumulate ? load_vector(c + i / NV * p.ldc + i % NV * kLanes<T>) : V{};
  // One step along k for rows [first, end) of the tile.
  const auto step_for = [&](int first, int end) __attribute__((always_inline)) {
    const T* b = rows_of_b.next();
#pragma GCC unroll 32
    for (int i = 0; i < MR * NV; ++i) {
      const int r = i / NV;
      if (r < first || r >= end) continue;
      const T av = order == Order::k_major ? a[r] : a[r * kTileStride<T>];
      acc[i] = multiply_add(av, load_vector(b + i % NV * kLanes<T>), acc[i]);
    }
    a += step_of_a;
  };
  const auto steps_for_all_rows = [&](std::int64_t count) __attribute__((always_inline)) {
    constexpr int kStepsPerPrefetch = 4, kLinesPerPrefetch = 4;
    for (std::int64_t step = 0; step < count; ++step) {
      if (step % kStepsPerPrefetch == 0 && p.prefetch != nullptr) p.prefetch->issue_lines(kLinesPerPrefetch);
      step_for(0, MR);
    }
  };
  if constexpr (steps == Steps::all) {
    steps_for_all_rows(p.k);
  } else if constexpr (steps == Steps::growing) {
    steps_for_all_rows(p.k + row);
#pragma GCC unroll 16
    for (int r = 0; r < MR - 1; ++r) step_for(r + 1, MR);
  } else {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r)
      if (row + r < p.k) step_for(0, r + 1);
    steps_for_all_rows(p.k - row - MR);
  }
#pragma GCC unroll 32
  for (int i = 0; i < MR * NV; ++i) store_vector(c + i / NV * p.ldc + i % NV * kLanes<T>, acc[i]);
}

template <typename T>
using TileFunction = void (*)(const Product<T>&, std::int64_t row, std::int64_t column);

// tiles[rows - 1]
template <typename T, int NV, Order order, Steps steps, typename RowsOfB, int... MR>
constexpr std::array<TileFunction<T>, sizeof...(MR)> tile_functions(std::integer_sequence<int, MR...>) {
  return {product_tile<T, MR + 1, NV, order, steps, RowsOfB>...};
}

template <typename T, int NV, Order order, Steps steps, typename RowsOfB>
void product_columns(const Product<T>& p, std::int64_t column) {
  static constexpr auto kTiles =
      tile_functions<T, NV, order, steps, RowsOfB>(std::make_integer_sequence<int, kTileRows>{});
  const std::int64_t tiles = (p.m + kTileRows - 1) / kTileRows;
  std::int64_t row = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t rows = (p.m - row + tiles - tile - 1) / (tiles - tile);
    kTiles[static_cast<std::size_t>(rows - 1)](p, row, column);
    row += rows;
  }
}

template <typename T, Order order, Steps steps, typename RowsOfB = EvenRows<T>>
void product(const Product<T>& p) {
  constexpr std::int64_t kWidth = kTileVectors * kLanes<T>;
  std::int64_t column = 0;
  for (; column + kWidth <= p.n; column += kWidth) product_columns<T, kTileVectors, order, steps, RowsOfB>(p, column);
  for (; column < p.n; column += kLanes<T>) product_columns<T, 1, order, steps, RowsOfB>(p, column);
}

}  // namespace

template <typename T>
void product_k_major(const Product<T>& p) {
  if (p.b_rows != nullptr) return product<T, Order::k_major, Steps::all, ListedRows<T>>(p);
  switch (p.steps) {
    case Steps::all:
      return product<T, Order::k_major, Steps::all>(p);
    case Steps::growing:
      return product<T, Order::k_major, Steps::growing>(p);
    case Steps::shrinking:
      return product<T, Order::k_major, Steps::shrinking>(p);
  }
}

template <typename T>
void product_rows(const Product<T>& p) {
  if (p.steps == Steps::growing) return product<T, Order::rows, Steps::growing>(p);
  product<T, Order::rows, Steps::all>(p);
}

template void product_k_major(const Product<float>&);
template void product_k_major(const Product<double>&);
template void product_rows(const Product<float>&);
template void product_rows(const Product<double>&);

}  // namespace mhla::cpu::MHLA_ISA
