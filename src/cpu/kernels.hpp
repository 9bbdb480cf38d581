// The inner loops of the CPU back end as a table of functions, one table per arithmetic type and instruction set.
// All work on small buffers that the callers (forward.cpp, backward.cpp, ...) keep in cache.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/stream_token.hpp"
#include "mhla/types.hpp"

namespace mhla::cpu {

// Internal rows are padded with zeros to whole cache lines.
constexpr std::size_t kLineBytes = 64;
template <typename T>
constexpr std::int64_t kLine = kLineBytes / sizeof(T);
template <typename T>
constexpr std::int64_t padded(std::int64_t dim) {
  return (dim + kLine<T> - 1) / kLine<T> * kLine<T>;
}

// A tile holds up to kTileTokens rows; its columns come in panels of kPanel, each stored with the compile-time row
// stride kTileStride: row addresses inside the kernels are then constant offsets, and an odd number of cache lines
// spreads the rows over the cache sets.
constexpr std::int64_t kTileTokens = 64;
template <typename T>
constexpr std::int64_t kPanel = 1024 / sizeof(T);
template <typename T>
constexpr std::int64_t kTileStride = kPanel<T> + kLine<T>;

// Rows of memory to bring into cache while a product runs, a few lines every few steps: token rows lie too far apart
// for the hardware to guess, and more prefetches at a time than the core has fill buffers stall it as the loads would.
class Prefetch {
 public:
  void clear() {
    rows_ = next_ = 0;
    line_ = end_ = nullptr;
  }
  void add(const std::byte* at, std::int64_t stride, std::int64_t rows, std::int64_t bytes) {
    for (; rows > 0 && rows_ < kMost; --rows, at += stride) row_[rows_++] = {at, at + bytes};
  }
  [[gnu::always_inline]] void issue_lines(int count) {
    for (int i = 0; i < count; ++i) {
      if (line_ >= end_) {
        if (next_ == rows_) return;
        line_ = row_[next_].begin;
        end_ = row_[next_++].end;
      }
      __builtin_prefetch(line_, 0, 2);
      line_ += kLineBytes;
    }
  }

 private:
  static constexpr std::int32_t kMost = 6 * 64;
  struct Row {
    const std::byte *begin, *end;
  };
  Row row_[kMost];
  std::int32_t rows_ = 0, next_ = 0;
  const std::byte *line_ = nullptr, *end_ = nullptr;  // of the row begun
};

// Which of the steps k a row r of a product sums, always in ascending order: what causal masks need.
enum class Steps {
  all,        // [0, k)
  growing,    // [0, k + r)
  shrinking,  // [r, k); k-major A only
};

// C[m, n] (+)= sum_k A[k, m] B[k, n]. n is a multiple of kLine; rows of B and C are 64-byte aligned.
template <typename T>
struct Product {
  std::int64_t m, n, k;
  const T* a;
  std::int64_t lda;  // k-major A only
  const T* b;
  std::int64_t ldb;
  T* c;
  std::int64_t ldc;
  bool accumulate;
  Steps steps = Steps::all;
  const T* const* b_rows =
      nullptr;                   // k-major A and all steps only: rows of B that do not lie evenly, instead of b, ldb
  Prefetch* prefetch = nullptr;  // issued along the way
};

// y[r, o] = sum_k x[r, k] weight[o, k], no row padded. An element is summed in the same order whatever `rows` and
// `outputs` are.
template <typename T>
struct RowProductPart {
  std::int64_t rows, outputs, k;
  const T *x, *weight;  // rows k apart
  T* y;
  std::int64_t ldy;
};

// `rows` rows of token elements, `stride` elements apart, beside a panel of a tile.
struct Rows {
  DType dtype;
  std::int64_t rows;
  std::int64_t stride;
  std::int64_t width;
};

struct Features {
  FeatureMap map;
  double scale;
  double eps;
};

template <typename T>
struct Kernels {
  // A[k, m] = a[k * lda + m].
  void (*product_k_major)(const Product<T>&);
  // A[k, m] = a[m * kTileStride + k]: the rows of a tile.
  void (*product_rows)(const Product<T>&);
  // acc[(i * columns + b) * kLine + lane] += x[i * ldx + e] y[b * ldy + e], lanes running over e; n a multiple of
  // kLine.
  void (*gram)(std::int64_t rows, std::int64_t columns, std::int64_t n, const T* x, std::int64_t ldx, const T* y,
               std::int64_t ldy, T* acc);

  void (*row_product)(const RowProductPart<T>&);

  // Tile rows from token elements: scale * (phi(x) + eps), zero padding up to padded(width).
  void (*load)(const Rows&, const Features&, const void* from, T* tile);
  // Token elements from tile rows, row r times factor[r] (null: 1).
  void (*store)(const Rows&, const T* tile, const T* factor, void* to);
  // Gradient through `features`: to = tile * scale * phi'(x).
  void (*store_gradient)(const Rows&, const Features&, const T* tile, const void* x, std::int64_t x_stride, void* to);

  // out[c, r] = in[r, c]; both padded, `rows` x `columns` of in.
  void (*transpose)(std::int64_t rows, std::int64_t columns, const T* in, std::int64_t ld_in, T* out,
                    std::int64_t ld_out);

  // out[r] (+)= tile row r . x
  void (*row_dots)(std::int64_t rows, std::int64_t width, const T* tile, const T* x, bool accumulate, T* out);
  // out[r] (+)= row r of a . row r of b
  void (*pair_dots)(std::int64_t rows, std::int64_t width, const T* a, const T* b, bool accumulate, T* out);
  // to[c] += sum_r factor[r] tile[r, c] (factor null: 1)
  void (*add_rows)(std::int64_t rows, std::int64_t width, const T* tile, const T* factor, T* to);
  // tile[r, c] += factor[r] x[c]
  void (*add_outer)(std::int64_t rows, std::int64_t width, const T* factor, const T* x, T* tile);
  // tile[r, c] *= factor[r]
  void (*scale_rows)(std::int64_t rows, std::int64_t width, const T* factor, T* tile);
  // to[n] += factor from[n]
  void (*add_scaled)(std::int64_t n, T factor, const T* from, T* to);

  // One token of streaming (cpu/stream/token.hpp).
  void (*stream_token)(const StreamToken<T>&);
};

// The table for this machine.
template <typename T>
const Kernels<T>& kernels();

}  // namespace mhla::cpu
