// The products MHLA is made of, on tiles and block summaries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/call.hpp"
#include "cpu/kernels.hpp"

namespace mhla::cpu {

// Elements from one block summary [rows, padded(columns)] to the next: a line more than needed, so that equal places of
// neighbouring summaries fall into different cache sets.
template <typename T>
constexpr std::int64_t summary_stride(std::int64_t rows, std::int64_t columns) {
  return rows * padded<T>(columns) + kLine<T>;
}

// S (+)= A^T B over the tokens of two tiles; S is [a.dim, padded(b.dim)].
template <typename T>
void outer_product(const Kernels<T>& kernel, std::int64_t tokens, const Tile<T>& a, const Tile<T>& b, T* S,
                   bool accumulate, Prefetch* prefetch = nullptr) {
  const std::int64_t ld = padded<T>(b.dim);
  for (std::int64_t pa = 0; pa < a.panels(); ++pa)
    for (std::int64_t pb = 0; pb < b.panels(); ++pb)
      kernel.product_k_major({.m = a.width(pa),
                              .n = b.padded_width(pb),
                              .k = tokens,
                              .a = a.panel(pa),
                              .lda = kTileStride<T>,
                              .b = b.panel(pb),
                              .ldb = kTileStride<T>,
                              .c = S + pa * kPanel<T> * ld + pb * kPanel<T>,
                              .ldc = ld,
                              .accumulate = accumulate,
                              .prefetch = prefetch});
}

// The same with the rows of B where the caller's tensor has them; b_dim is a multiple of kLine.
template <typename T>
void outer_product(const Kernels<T>& kernel, std::int64_t tokens, const Tile<T>& a, const T* const* b_rows,
                   std::int64_t b_dim, T* S, bool accumulate, Prefetch* prefetch) {
  for (std::int64_t pa = 0; pa < a.panels(); ++pa)
    kernel.product_k_major({.m = a.width(pa),
                            .n = b_dim,
                            .k = tokens,
                            .a = a.panel(pa),
                            .lda = kTileStride<T>,
                            .b = nullptr,
                            .ldb = 0,
                            .c = S + pa * kPanel<T> * b_dim,
                            .ldc = b_dim,
                            .accumulate = accumulate,
                            .b_rows = b_rows,
                            .prefetch = prefetch});
}

// out (+)= in S, row by row; S is [in.dim, out.dim] with rows `ld` apart.
template <typename T>
void apply(const Kernels<T>& kernel, std::int64_t tokens, const Tile<T>& in, const T* S, std::int64_t ld,
           const Tile<T>& out, bool accumulate, Prefetch* prefetch = nullptr) {
  for (std::int64_t po = 0; po < out.panels(); ++po)
    for (std::int64_t pi = 0; pi < in.panels(); ++pi)
      kernel.product_rows({.m = tokens,
                           .n = out.padded_width(po),
                           .k = in.width(pi),
                           .a = in.panel(pi),
                           .lda = 0,
                           .b = S + pi * kPanel<T> * ld + po * kPanel<T>,
                           .ldb = ld,
                           .c = out.panel(po),
                           .ldc = kTileStride<T>,
                           .accumulate = accumulate || pi > 0,
                           .prefetch = prefetch});
}

template <typename T>
void apply(const Kernels<T>& kernel, std::int64_t tokens, const Tile<T>& in, const T* S, const Tile<T>& out,
           bool accumulate, Prefetch* prefetch = nullptr) {
  apply(kernel, tokens, in, S, padded<T>(out.dim), out, accumulate, prefetch);
}

// Rows of `in` that a row of the mixed result is made of: [begin, end).
struct Sources {
  std::int64_t begin, end;
};

// out[r] (+)= sum_{s in sources(r)} weights[s * ldw + r] in[s] for rows r in [0, rows) and columns [begin, end).
template <typename T>
struct Mixing {
  std::int64_t rows;
  const T* weights;
  std::int64_t ldw;
  const T* in;
  std::int64_t ld_in;
  T* out;
  std::int64_t ld_out;
  bool accumulate;
};

// Columns mixed at a time: with all their sources they should stay in the first-level cache.
template <typename T>
constexpr std::int64_t kStripElements = 32 * 1024 / static_cast<std::int64_t>(sizeof(T));
template <typename T>
constexpr std::int64_t kNarrowestStrip = 2 * kLine<T>;
template <typename T>
constexpr std::int64_t strip_width(std::int64_t sources) {
  const std::int64_t fitting = kStripElements<T> / std::max<std::int64_t>(sources, 1);
  return std::clamp(fitting / kNarrowestStrip<T> * kNarrowestStrip<T>, kNarrowestStrip<T>, 16 * kNarrowestStrip<T>);
}
// Enough for any number of sources up to `most`.
template <typename T>
constexpr std::int64_t strip_elements(std::int64_t most) {
  return std::max(kStripElements<T>, kNarrowestStrip<T> * most);
}

// `strip` is scratch of strip_elements(number of sources). `sources` must be monotonic in both ends.
template <typename T, typename SourcesOf>
void mix_columns(const Kernels<T>& kernel, const Mixing<T>& mixing, SourcesOf&& sources, std::int64_t begin,
                 std::int64_t end, T* strip) {
  constexpr std::int64_t kDirectRows = 28;
  if (mixing.rows == 0) return;
  // Rows that share one product: all, or a few where every row has other sources.
  const Sources first = sources(0), last = sources(mixing.rows - 1);
  const bool uniform = first.begin == last.begin && first.end == last.end;
  const std::int64_t group = uniform ? mixing.rows : 6;
  // With many rows a strip of `in` is read many times: gather it into consecutive memory first.
  const bool gather = mixing.rows > kDirectRows;
  const std::int64_t step = strip_width<T>(last.end);
  for (std::int64_t column = begin; column < end; column += step) {
    const std::int64_t width = std::min(step, end - column);
    const T* in = mixing.in + column;
    std::int64_t ld_in = mixing.ld_in;
    if (gather) {
      for (std::int64_t s = first.begin; s < last.end; ++s)
        std::memcpy(strip + s * step, in + s * ld_in, static_cast<std::size_t>(width) * sizeof(T));
      in = strip;
      ld_in = step;
    }
    const auto product = [&](std::int64_t row, std::int64_t rows, Sources from, bool accumulate) {
      kernel.product_k_major({.m = rows,
                              .n = width,
                              .k = std::max<std::int64_t>(from.end - from.begin, 0),
                              .a = mixing.weights + from.begin * mixing.ldw + row,
                              .lda = mixing.ldw,
                              .b = in + from.begin * ld_in,
                              .ldb = ld_in,
                              .c = mixing.out + row * mixing.ld_out + column,
                              .ldc = mixing.ld_out,
                              .accumulate = accumulate});
    };
    for (std::int64_t row = 0; row < mixing.rows; row += group) {
      const std::int64_t rows = std::min(group, mixing.rows - row);
      // Sources all rows of the group share; what single rows have besides is added before or after, so that every sum
      // runs in ascending order whatever the grouping.
      const Sources shared{sources(row + rows - 1).begin, sources(row).end};
      bool started = mixing.accumulate;
      if (sources(row).begin < shared.begin) {
        for (std::int64_t r = row; r < row + rows; ++r)
          product(r, 1, {sources(r).begin, std::min(shared.begin, sources(r).end)}, mixing.accumulate);
        started = true;
      }
      product(row, rows, shared, started);
      for (std::int64_t r = row; r < row + rows; ++r)
        if (sources(r).end > std::max(shared.end, shared.begin))
          product(r, 1, {std::max(shared.end, shared.begin), sources(r).end}, true);
    }
  }
}

template <typename T, typename SourcesOf>
void mix(const Kernels<T>& kernel, const Team& team, const Mixing<T>& mixing, SourcesOf&& sources, std::int64_t columns,
         T* const* strips) {
  const std::int64_t piece = team.workers() == 1 ? columns : 32 * kLine<T>;
  team.for_each((columns + piece - 1) / std::max<std::int64_t>(piece, 1), [&](int worker, std::int64_t i) {
    mix_columns(kernel, mixing, sources, i * piece, std::min(columns, (i + 1) * piece), strips[worker]);
  });
}

}  // namespace mhla::cpu
