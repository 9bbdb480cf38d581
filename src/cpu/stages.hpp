// The products MHLA is made of, on tiles and block summaries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/cpu_call.hpp"
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

// out[r] (+)= sum_s weights[s * ldw + r] in[s] for rows r in [0, rows), over the sources s that `steps` gives a row:
// [0, sources), or as in a product. `out` may be `in`, from some row on.
template <typename T>
struct Mixing {
  std::int64_t rows;
  std::int64_t sources;
  Steps steps;
  const T* weights;
  std::int64_t ldw;
  const T* in = nullptr;
  std::int64_t ld_in = 0;
  T* out = nullptr;
  std::int64_t ld_out = 0;
  bool accumulate = false;

  Mixing with(const T* from, std::int64_t ld_from, T* to, std::int64_t ld_to) const {
    Mixing mixing = *this;
    mixing.in = from, mixing.ld_in = ld_from, mixing.out = to, mixing.ld_out = ld_to;
    return mixing;
  }
};

// S~ from S, or alike, for query blocks [first, first + blocks) of `total`: `weights` receives what the mixing matrix
// has for them, transposed. Where the summaries lie is left open.
template <typename T>
Mixing<T> mixing_for(const CpuCall<T>& call, const T* matrix, std::int64_t first, std::int64_t blocks,
                     std::int64_t total, T* weights) {
  for (std::int64_t i = 0; i < blocks; ++i)
    for (std::int64_t b = 0; b < call.mixing_limit(first + i, total); ++b)
      weights[b * blocks + i] = matrix[(first + i) * call.p.mixing_blocks + b];
  return {.rows = blocks,
          .sources = call.mixing_limit(first, total),
          .steps = call.p.options.masking == Masking::none ? Steps::all : Steps::growing,
          .weights = weights,
          .ldw = blocks};
}

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

// Columns [begin, end) of a mixing. Strips of `in` are gathered into consecutive memory, `strip`: they are read once
// per register tile, and the result may take their place. Meanwhile the next strip comes into cache.
template <typename T>
void mix_columns(const Kernels<T>& kernel, const Mixing<T>& mixing, std::int64_t begin, std::int64_t end, T* strip) {
  if (mixing.rows == 0) return;
  const std::int64_t sources = mixing.sources + (mixing.steps == Steps::growing ? mixing.rows - 1 : 0);
  const std::int64_t step = strip_width<T>(sources);
  Prefetch next;
  for (std::int64_t column = begin; column < end; column += step) {
    const std::int64_t width = std::min(step, end - column);
    for (std::int64_t s = 0; s < sources; ++s)
      std::memcpy(strip + s * step, mixing.in + s * mixing.ld_in + column, static_cast<std::size_t>(width) * sizeof(T));
    next.clear();
    if (column + step < end)
      next.add(reinterpret_cast<const std::byte*>(mixing.in + column + step),
               mixing.ld_in * static_cast<std::int64_t>(sizeof(T)), sources,
               std::min(step, end - column - step) * static_cast<std::int64_t>(sizeof(T)));
    kernel.product_k_major({.m = mixing.rows,
                            .n = width,
                            .k = mixing.sources,
                            .a = mixing.weights,
                            .lda = mixing.ldw,
                            .b = strip,
                            .ldb = step,
                            .c = mixing.out + column,
                            .ldc = mixing.ld_out,
                            .accumulate = mixing.accumulate,
                            .steps = mixing.steps,
                            .prefetch = &next});
  }
}

template <typename T>
void mix(const Kernels<T>& kernel, const Team& team, const Mixing<T>& mixing, std::int64_t columns, T* const* strips) {
  const std::int64_t piece = team.workers() == 1 ? columns : 32 * kLine<T>;
  team.for_each((columns + piece - 1) / std::max<std::int64_t>(piece, 1), [&](int worker, std::int64_t i) {
    mix_columns(kernel, mixing, i * piece, std::min(columns, (i + 1) * piece), strips[worker]);
  });
}

}  // namespace mhla::cpu
