// All inner products between two sets of long rows, for the gradient of the mixing matrix: dm[i, b] += <G_i, S_b>.
//
// Vector lanes stay apart until the very end (the caller adds them once), so no step sums across a register.
#include <array>
#include <utility>

#include "cpu/kernels/simd.hpp"
#include "cpu/kernels/table.hpp"

namespace mhla::cpu::MHLA_ISA {
namespace {

constexpr int kGramRows = 4;
constexpr int kGramColumns = kVectorBytes == 64 ? 5 : 2;

template <typename T, int RI, int RB>
void gram_tile(std::int64_t columns, std::int64_t n, const T* x, std::int64_t ldx, const T* y, std::int64_t ldy,
               T* acc) {
  using V = Vector<T>;
  V sum[RI][RB];
  for (int i = 0; i < RI; ++i)
    for (int b = 0; b < RB; ++b) sum[i][b] = load_vector(acc + (i * columns + b) * kLine<T>);
  for (std::int64_t e = 0; e < n; e += kLanes<T>) {
    V yv[RB];
    for (int b = 0; b < RB; ++b) yv[b] = load_vector(y + b * ldy + e);
    for (int i = 0; i < RI; ++i) {
      const V xv = load_vector(x + i * ldx + e);
      for (int b = 0; b < RB; ++b) sum[i][b] += xv * yv[b];
    }
  }
  for (int i = 0; i < RI; ++i)
    for (int b = 0; b < RB; ++b) store_vector<T>(acc + (i * columns + b) * kLine<T>, sum[i][b]);
}

template <typename T>
using GramFunction = void (*)(std::int64_t, std::int64_t, const T*, std::int64_t, const T*, std::int64_t, T*);

template <typename T, int... Index>
constexpr std::array<GramFunction<T>, sizeof...(Index)> gram_functions(std::integer_sequence<int, Index...>) {
  return {gram_tile<T, Index / kGramColumns + 1, Index % kGramColumns + 1>...};
}

// Size of the next piece when `left` items are cut evenly into pieces of at most `most`.
std::int64_t even_piece(std::int64_t left, std::int64_t most) {
  const std::int64_t pieces = (left + most - 1) / most;
  return (left + pieces - 1) / pieces;
}

}  // namespace

template <typename T>
void gram(std::int64_t rows, std::int64_t columns, std::int64_t n, const T* x, std::int64_t ldx, const T* y,
          std::int64_t ldy, T* acc) {
  static constexpr auto kTiles = gram_functions<T>(std::make_integer_sequence<int, kGramRows * kGramColumns>{});
  for (std::int64_t i = 0, ri = 0; i < rows; i += ri) {
    ri = even_piece(rows - i, kGramRows);
    for (std::int64_t b = 0, rb = 0; b < columns; b += rb) {
      rb = even_piece(columns - b, kGramColumns);
      kTiles[static_cast<std::size_t>((ri - 1) * kGramColumns + rb - 1)](columns, n, x + i * ldx, ldx, y + b * ldy, ldy,
                                                                         acc + (i * columns + b) * kLine<T>);
    }
  }
}

template void gram(std::int64_t, std::int64_t, std::int64_t, const float*, std::int64_t, const float*, std::int64_t,
                   float*);
template void gram(std::int64_t, std::int64_t, std::int64_t, const double*, std::int64_t, const double*, std::int64_t,
                   double*);

}  // namespace mhla::cpu::MHLA_ISA
