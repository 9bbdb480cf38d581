// Streaming: one token at one head. P and C are read once and C is written once, in strips of columns whose part of
// v and o stays in registers.
#include "cpu/stream_token.hpp"

#include "cpu/kernels/simd.hpp"
#include "cpu/kernels/table.hpp"

namespace mhla::cpu::MHLA_ISA {
namespace {

// Columns [column, column + Vectors * kLanes) of query head g; the first query head adds the token to C.
template <int Vectors, bool Update, typename T>
void strip(const StreamToken<T>& d, std::int64_t g, std::int64_t column) {
  const T* q = d.q + g * d.key_dim;
  const T* P = d.P + g * d.P_stride + column;
  T* C = d.C + column;
  const T weight = d.weight[g * d.weight_stride];
  Vector<T> v[Vectors], o[Vectors] = {};
  for (int n = 0; n < Vectors; ++n) v[n] = load_vector(d.v + column + n * kLanes<T>);
  for (std::int64_t row = 0; row < d.key_dim; ++row, P += d.value_dim, C += d.value_dim)
    for (int n = 0; n < Vectors; ++n) {
      Vector<T> c = load_vector(C + n * kLanes<T>);
      if constexpr (Update) {
        c += d.k[row] * v[n];
        store_vector<T>(C + n * kLanes<T>, c);
      }
      o[n] += q[row] * (load_vector(P + n * kLanes<T>) + weight * c);
    }
  for (int n = 0; n < Vectors; ++n) store_vector<T>(d.o + g * d.value_dim + column + n * kLanes<T>, o[n]);
}

template <bool Update, typename T>
void single_column(const StreamToken<T>& d, std::int64_t g, std::int64_t column) {
  const T* P = d.P + g * d.P_stride;
  const T weight = d.weight[g * d.weight_stride];
  T o = 0;
  for (std::int64_t row = 0; row < d.key_dim; ++row) {
    const std::int64_t at = row * d.value_dim + column;
    if constexpr (Update) d.C[at] += d.k[row] * d.v[column];
    o += d.q[g * d.key_dim + row] * (P[at] + weight * d.C[at]);
  }
  d.o[g * d.value_dim + column] = o;
}

template <bool Update, typename T>
void query_head(const StreamToken<T>& d, std::int64_t g) {
  constexpr int kWide = kVectorBytes >= 64 ? 8 : 4;  // v and o fill half of the registers
  std::int64_t column = 0;
  for (; column + kWide * kLanes<T> <= d.value_dim; column += kWide * kLanes<T>) strip<kWide, Update>(d, g, column);
  for (; column + 2 * kLanes<T> <= d.value_dim; column += 2 * kLanes<T>) strip<2, Update>(d, g, column);
  for (; column + kLanes<T> <= d.value_dim; column += kLanes<T>) strip<1, Update>(d, g, column);
  for (; column < d.value_dim; ++column) single_column<Update>(d, g, column);
}

}  // namespace

template <typename T>
void stream_token(const StreamToken<T>& d) {
  query_head<true>(d, 0);
  for (std::int64_t g = 1; g < d.queries; ++g) query_head<false>(d, g);
}

template void stream_token(const StreamToken<float>&);
template void stream_token(const StreamToken<double>&);

}  // namespace mhla::cpu::MHLA_ISA
