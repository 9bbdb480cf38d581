// Few rows times a matrix whose rows are long: inner products, summed lane by lane along the rows and then over the
// lanes. Register tiles differ in how many inner products are under way, not in how one is summed.
#include <algorithm>
#include <array>
#include <utility>

#include "cpu/kernels/simd.hpp"
#include "cpu/kernels/table.hpp"

namespace mhla::cpu::MHLA_ISA {
namespace {

constexpr int kMostRows = 4;
constexpr int kAlone = 8;  // rows of the matrix beside one row of x: as many sums as hide the latency of an addition
constexpr std::int64_t kInCache = 16;                // rows of the matrix that meet all of x before the next
constexpr int kBeside = kVectorBytes == 64 ? 4 : 2;  // beside several rows of x

// The last elements of a row, filled up with zeros.
template <typename T>
Vector<T> load_rest(const T* from, std::int64_t count) {
  Vector<T> v{};
  std::memcpy(&v, from, static_cast<std::size_t>(count) * sizeof(T));
  return v;
}

template <typename T, int rows, int outputs>
void product_tile(const RowProductPart<T>& p, std::int64_t row, std::int64_t output) {
  using V = Vector<T>;
  const T* const x = p.x + row * p.k;
  const T* const weight = p.weight + output * p.k;
  V sum[rows * outputs]{};
  const auto add = [&](const auto& load) __attribute__((always_inline)) {
    V w[outputs];
#pragma GCC unroll 8
    for (int o = 0; o < outputs; ++o) w[o] = load(weight + o * p.k);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const V a = load(x + r * p.k);
#pragma GCC unroll 8
      for (int o = 0; o < outputs; ++o) sum[r * outputs + o] = multiply_add<T>(a, w[o], sum[r * outputs + o]);
    }
  };
  std::int64_t k = 0;
  for (; k + kLanes<T> <= p.k; k += kLanes<T>) add([k](const T* from) { return load_vector(from + k); });
  if (k < p.k) add([k, &p](const T* from) { return load_rest(from + k, p.k - k); });
  for (int r = 0; r < rows; ++r)
    for (int o = 0; o < outputs; ++o) p.y[(row + r) * p.ldy + output + o] = sum_lanes<T>(sum[r * outputs + o]);
}

template <typename T>
using TileFunction = void (*)(const RowProductPart<T>&, std::int64_t, std::int64_t);

// By the number of outputs, from one on.
template <typename T, int rows, int... Index>
constexpr std::array<TileFunction<T>, sizeof...(Index)> tiles(std::integer_sequence<int, Index...>) {
  return {product_tile<T, rows, Index + 1>...};
}

template <typename T, int rows, int most>
void product_of(const RowProductPart<T>& p, std::int64_t row, std::int64_t output, std::int64_t end) {
  static constexpr auto kTiles = tiles<T, rows>(std::make_integer_sequence<int, most>{});
  for (; output < end; output += most)
    kTiles[static_cast<std::size_t>(std::min<std::int64_t>(most, end - output) - 1)](p, row, output);
}

}  // namespace

template <typename T>
void row_product(const RowProductPart<T>& p) {
  for (std::int64_t output = 0; output < p.outputs; output += kInCache) {
    const std::int64_t end = std::min(output + kInCache, p.outputs);
    std::int64_t row = 0;
    for (; row + kMostRows <= p.rows; row += kMostRows) product_of<T, kMostRows, kBeside>(p, row, output, end);
    for (; row < p.rows; ++row) product_of<T, 1, kAlone>(p, row, output, end);
  }
}

template void row_product(const RowProductPart<float>&);
template void row_product(const RowProductPart<double>&);

}  // namespace mhla::cpu::MHLA_ISA
