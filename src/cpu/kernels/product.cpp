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

template <typename T, int MR, int NV, Order order, typename RowsOfB>
void product_tile(const Product<T>& p, std::int64_t row, std::int64_t column) {
  using V = Vector<T>;
  const T* a = p.a + (order == Order::k_major ? row : row * kTileStride<T>);
  T* c = p.c + row * p.ldc + column;
  RowsOfB rows_of_b = [&] {
    if constexpr (std::is_same_v<RowsOfB, ListedRows<T>>)
      return ListedRows<T>{p.b_rows, column};
    else
      return EvenRows<T>{p.b + column, p.ldb};
  }();
  V acc[MR][NV];
  if (p.accumulate) {
    for (int r = 0; r < MR; ++r)
      for (int j = 0; j < NV; ++j) acc[r][j] = load_vector(c + r * p.ldc + j * kLanes<T>);
  } else {
    for (int r = 0; r < MR; ++r)
      for (int j = 0; j < NV; ++j) acc[r][j] = V{};
  }
  const auto one_step = [&]() __attribute__((always_inline)) {
    const T* b = rows_of_b.next();
    V bv[NV];
    for (int j = 0; j < NV; ++j) bv[j] = load_vector(b + j * kLanes<T>);
    for (int r = 0; r < MR; ++r) {
      const T av = order == Order::k_major ? a[r] : a[r * kTileStride<T>];
      for (int j = 0; j < NV; ++j) acc[r][j] = multiply_add(av, bv[j], acc[r][j]);
    }
    a += order == Order::k_major ? p.lda : 1;
  };
  constexpr std::int64_t kUnrolled = 4;
  std::int64_t step = 0;
  for (; step + kUnrolled <= p.k; step += kUnrolled) {
    if (p.prefetch != nullptr) p.prefetch->issue_row();
    for (int u = 0; u < kUnrolled; ++u) one_step();
  }
  for (; step < p.k; ++step) one_step();
  for (int r = 0; r < MR; ++r)
    for (int j = 0; j < NV; ++j) store_vector(c + r * p.ldc + j * kLanes<T>, acc[r][j]);
}

template <typename T>
using TileFunction = void (*)(const Product<T>&, std::int64_t row, std::int64_t column);

// tiles[rows - 1]
template <typename T, int NV, Order order, typename RowsOfB, int... MR>
constexpr std::array<TileFunction<T>, sizeof...(MR)> tile_functions(std::integer_sequence<int, MR...>) {
  return {product_tile<T, MR + 1, NV, order, RowsOfB>...};
}

template <typename T, int NV, Order order, typename RowsOfB>
void product_columns(const Product<T>& p, std::int64_t column) {
  static constexpr auto kTiles = tile_functions<T, NV, order, RowsOfB>(std::make_integer_sequence<int, kTileRows>{});
  const std::int64_t tiles = (p.m + kTileRows - 1) / kTileRows;
  std::int64_t row = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t rows = (p.m - row + tiles - tile - 1) / (tiles - tile);
    kTiles[static_cast<std::size_t>(rows - 1)](p, row, column);
    row += rows;
  }
}

template <typename T, Order order, typename RowsOfB>
void product(const Product<T>& p) {
  constexpr std::int64_t kWidth = kTileVectors * kLanes<T>;
  std::int64_t column = 0;
  for (; column + kWidth <= p.n; column += kWidth) product_columns<T, kTileVectors, order, RowsOfB>(p, column);
  for (; column < p.n; column += kLanes<T>) product_columns<T, 1, order, RowsOfB>(p, column);
}

}  // namespace

template <typename T>
void product_k_major(const Product<T>& p) {
  if (p.b_rows != nullptr)
    product<T, Order::k_major, ListedRows<T>>(p);
  else
    product<T, Order::k_major, EvenRows<T>>(p);
}

template <typename T>
void product_rows(const Product<T>& p) {
  product<T, Order::rows, EvenRows<T>>(p);
}

template void product_k_major(const Product<float>&);
template void product_k_major(const Product<double>&);
template void product_rows(const Product<float>&);
template void product_rows(const Product<double>&);

}  // namespace mhla::cpu::MHLA_ISA
