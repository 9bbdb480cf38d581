// Products of tile rows with vectors: what the denominator and its gradient need.
#include "cpu/kernels/simd.hpp"
#include "cpu/kernels/table.hpp"

namespace mhla::cpu::MHLA_ISA {
namespace {

// Whole vectors are read: rows are padded with zeros.
template <typename T>
T dot(std::int64_t width, const T* a, const T* b) {
  Vector<T> sum{};
  for (std::int64_t c = 0; c < width; c += kLanes<T>) sum += load_vector(a + c) * load_vector(b + c);
  return sum_lanes<T>(sum);
}

template <typename T>
void axpy(std::int64_t width, T factor, const T* from, T* to) {
  for (std::int64_t c = 0; c < width; c += kLanes<T>)
    store_vector<T>(to + c, load_vector(to + c) + factor * load_vector(from + c));
}

}  // namespace

template <typename T>
void row_dots(std::int64_t rows, std::int64_t width, const T* tile, const T* x, bool accumulate, T* out) {
  for (std::int64_t r = 0; r < rows; ++r)
    out[r] = (accumulate ? out[r] : T(0)) + dot(width, tile + r * kTileStride<T>, x);
}

template <typename T>
void pair_dots(std::int64_t rows, std::int64_t width, const T* a, const T* b, bool accumulate, T* out) {
  for (std::int64_t r = 0; r < rows; ++r)
    out[r] = (accumulate ? out[r] : T(0)) + dot(width, a + r * kTileStride<T>, b + r * kTileStride<T>);
}

template <typename T>
void add_rows(std::int64_t rows, std::int64_t width, const T* tile, const T* factor, T* to) {
  for (std::int64_t c = 0; c < width; c += kLanes<T>) {
    Vector<T> sum = load_vector(to + c);
    for (std::int64_t r = 0; r < rows; ++r) {
      const Vector<T> row = load_vector(tile + r * kTileStride<T> + c);
      sum += factor == nullptr ? row : factor[r] * row;
    }
    store_vector<T>(to + c, sum);
  }
}

template <typename T>
void add_outer(std::int64_t rows, std::int64_t width, const T* factor, const T* x, T* tile) {
  for (std::int64_t r = 0; r < rows; ++r) axpy(width, factor[r], x, tile + r * kTileStride<T>);
}

template <typename T>
void scale_rows(std::int64_t rows, std::int64_t width, const T* factor, T* tile) {
  for (std::int64_t r = 0; r < rows; ++r) {
    T* row = tile + r * kTileStride<T>;
    for (std::int64_t c = 0; c < width; c += kLanes<T>) store_vector<T>(row + c, load_vector(row + c) * factor[r]);
  }
}

template <typename T>
void add_scaled(std::int64_t n, T factor, const T* from, T* to) {
  axpy(n, factor, from, to);
}

#define MHLA_INSTANTIATE(T)                                                          \
  template void row_dots(std::int64_t, std::int64_t, const T*, const T*, bool, T*);  \
  template void pair_dots(std::int64_t, std::int64_t, const T*, const T*, bool, T*); \
  template void add_rows(std::int64_t, std::int64_t, const T*, const T*, T*);        \
  template void add_outer(std::int64_t, std::int64_t, const T*, const T*, T*);       \
  template void scale_rows(std::int64_t, std::int64_t, const T*, T*);                \
  template void add_scaled(std::int64_t, T, const T*, T*)
MHLA_INSTANTIATE(float);
MHLA_INSTANTIATE(double);
#undef MHLA_INSTANTIATE

}  // namespace mhla::cpu::MHLA_ISA
