// The part of a token-causal call inside one chunk of tokens: A = weight * tril(X Y^T), and its products with other
// tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cpu_call.hpp"
#include "cpu/kernels.hpp"

namespace mhla::cpu {

template <typename T>
class CausalChunk {
 public:
  CausalChunk(Workspace& w, std::int64_t widest)
      : transposed_(w.take<T>(std::min(widest, kPanel<T>) * kTileTokens)), A_(w, kTileTokens) {}

  // A[t, s] = weight x_t . y_s for s <= t; above the diagonal A is not defined.
  void scores(const Kernels<T>& kernel, std::int64_t tokens, const Tile<T>& x, const Tile<T>& y, T weight) {
    for (std::int64_t panel = 0; panel < x.panels(); ++panel) {
      kernel.transpose(tokens, y.width(panel), y.panel(panel), kTileStride<T>, transposed_, kTileTokens);
      for (std::int64_t r = 0; r < y.width(panel); ++r)
        std::fill(transposed_ + r * kTileTokens + tokens, transposed_ + r * kTileTokens + padded<T>(tokens), T(0));
      for_each_group(tokens, [&](std::int64_t first, std::int64_t end) {
        kernel.product_rows({.m = end - first,
                             .n = padded<T>(end),
                             .k = x.width(panel),
                             .a = x.panel(panel) + first * kTileStride<T>,
                             .lda = 0,
                             .b = transposed_,
                             .ldb = kTileTokens,
                             .c = A_.panel(0) + first * kTileStride<T>,
                             .ldc = kTileStride<T>,
                             .accumulate = panel > 0});
      });
    }
    for (std::int64_t t = 0; t < tokens; ++t) {
      T* a = A_.panel(0) + t * kTileStride<T>;
      for (std::int64_t s = 0; s <= t; ++s) a[s] *= weight;
    }
  }

  // out_t += sum_{s <= t} A[t, s] in_s
  void apply_lower(const Kernels<T>& kernel, std::int64_t tokens, const Tile<T>& in, const Tile<T>& out) const {
    for (std::int64_t panel = 0; panel < in.panels(); ++panel)
      kernel.product_rows({.m = tokens,
                           .n = in.padded_width(panel),
                           .k = 1,
                           .a = A_.panel(0),
                           .lda = 0,
                           .b = in.panel(panel),
                           .ldb = kTileStride<T>,
                           .c = out.panel(panel),
                           .ldc = kTileStride<T>,
                           .accumulate = true,
                           .steps = Steps::growing});
  }

  // out_s += sum_{t >= s} A[t, s] in_t
  void apply_lower_transposed(const Kernels<T>& kernel, std::int64_t tokens, const Tile<T>& in,
                              const Tile<T>& out) const {
    for (std::int64_t panel = 0; panel < in.panels(); ++panel)
      kernel.product_k_major({.m = tokens,
                              .n = in.padded_width(panel),
                              .k = tokens,
                              .a = A_.panel(0),
                              .lda = kTileStride<T>,
                              .b = in.panel(panel),
                              .ldb = kTileStride<T>,
                              .c = out.panel(panel),
                              .ldc = kTileStride<T>,
                              .accumulate = true,
                              .steps = Steps::shrinking});
  }

 private:
  template <typename Visit>
  static void for_each_group(std::int64_t tokens, Visit&& visit) {
    constexpr std::int64_t kGroup = 16;
    for (std::int64_t first = 0; first < tokens; first += kGroup) visit(first, std::min(first + kGroup, tokens));
  }

  T* transposed_;  // [width of a panel, kTileTokens]
  Tile<T> A_;
};

}  // namespace mhla::cpu
