// Matrix transposition in register squares.
//
// One round of interleaving row i with row i + n/2 is a perfect shuffle of the n x n square's index bits; log2(n)
// rounds transpose it.
#include <utility>

#include "cpu/kernels/simd.hpp"
#include "cpu/kernels/table.hpp"

namespace mhla::cpu::MHLA_ISA {
namespace {

template <typename T, int... Lane>
void interleave(const Vector<T>& a, const Vector<T>& b, Vector<T>& low, Vector<T>& high,
                std::integer_sequence<int, Lane...>) {
  constexpr int n = kLanes<T>;
  low = __builtin_shufflevector(a, b, (Lane / 2 + (Lane % 2) * n)...);
  high = __builtin_shufflevector(a, b, (n / 2 + Lane / 2 + (Lane % 2) * n)...);
}

template <typename T>
void transpose_square(const T* in, std::int64_t ld_in, T* out, std::int64_t ld_out) {
  constexpr int n = kLanes<T>;
  Vector<T> rows[n], next[n];
  for (int i = 0; i < n; ++i) rows[i] = load_vector(in + i * ld_in);
  for (int round = 1; round < n; round *= 2) {
    for (int i = 0; i < n / 2; ++i)
      interleave<T>(rows[i], rows[i + n / 2], next[2 * i], next[2 * i + 1], std::make_integer_sequence<int, n>{});
    for (int i = 0; i < n; ++i) rows[i] = next[i];
  }
  for (int i = 0; i < n; ++i) store_vector<T>(out + i * ld_out, rows[i]);
}

}  // namespace

template <typename T>
void transpose(std::int64_t rows, std::int64_t columns, const T* in, std::int64_t ld_in, T* out, std::int64_t ld_out) {
  constexpr std::int64_t n = kLanes<T>;
  for (std::int64_t r = 0; r < rows; r += n)
    for (std::int64_t c = 0; c < columns; c += n) {
      if (r + n <= rows && c + n <= columns) {
        transpose_square(in + r * ld_in + c, ld_in, out + c * ld_out + r, ld_out);
      } else {
        for (std::int64_t i = r; i < rows && i < r + n; ++i)
          for (std::int64_t j = c; j < columns && j < c + n; ++j) out[j * ld_out + i] = in[i * ld_in + j];
      }
    }
}

template void transpose(std::int64_t, std::int64_t, const float*, std::int64_t, float*, std::int64_t);
template void transpose(std::int64_t, std::int64_t, const double*, std::int64_t, double*, std::int64_t);

}  // namespace mhla::cpu::MHLA_ISA
