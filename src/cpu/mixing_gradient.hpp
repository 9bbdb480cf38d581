// d_mixing, summed over sequences and heads in an order that does not depend on threads: units are cut into a fixed
// number of consecutive parts, each part sums on its own, and the parts are added in order at the end.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cpu_call.hpp"
#include "cpu/kernels.hpp"

namespace mhla::cpu {

template <typename T>
class MixingGradient {
 public:
  MixingGradient(Workspace& w, const CpuCall<T>& call)
      : call_(call), used_(call.most_blocks()), heads_(call.p.mixing_per_head ? call.p.heads : 1) {
    constexpr std::int64_t kMostElements = std::int64_t{1} << 24;
    const std::int64_t affordable = kMostElements / (heads_ * used_ * used_);
    parts_ = std::min(call.units(), std::clamp<std::int64_t>(affordable, 8, 64));
    sums_ = w.take<T>(parts_ * heads_ * used_ * used_);
  }

  std::int64_t parts() const { return parts_; }
  std::int64_t first_unit(std::int64_t part) const { return part * call_.units() / parts_; }

  void clear(std::int64_t part) { std::fill_n(sum(part, 0), heads_ * used_ * used_, T(0)); }

  // Row i of the gradient of a query head's matrix.
  T* row(std::int64_t part, std::int64_t head, std::int64_t i) { return sum(part, head) + i * used_; }

  void finish(T* d_mixing) {
    const std::int64_t M = call_.p.mixing_blocks;
    std::fill_n(d_mixing, heads_ * M * M, T(0));
    for (std::int64_t part = 0; part < parts_; ++part)
      for (std::int64_t h = 0; h < heads_; ++h)
        for (std::int64_t i = 0; i < std::min(used_, M); ++i) {
          const T* from = sum(part, h) + i * used_;
          T* to = d_mixing + (h * M + i) * M;
          for (std::int64_t b = 0; b < std::min(used_, M); ++b) to[b] += from[b];
        }
  }

 private:
  T* sum(std::int64_t part, std::int64_t head) const {
    return sums_ + (part * heads_ + (heads_ > 1 ? head : 0)) * used_ * used_;
  }

  const CpuCall<T>& call_;
  std::int64_t used_;
  std::int64_t heads_;
  std::int64_t parts_;
  T* sums_;
};

// One worker's inner products <x_i, y_b> for a group of query blocks.
template <typename T>
class BlockProducts {
 public:
  static constexpr std::int64_t kRows = 64;

  BlockProducts(Workspace& w, std::int64_t blocks) : acc_(w.take<T>(std::min(kRows, blocks) * blocks * kLine<T>)) {}

  void start(std::int64_t rows, std::int64_t columns) {
    rows_ = rows;
    columns_ = columns;
    std::fill_n(acc_, rows * columns * kLine<T>, T(0));
  }

  void add(const Kernels<T>& kernel, std::int64_t n, const T* x, std::int64_t ldx, const T* y, std::int64_t ldy) {
    constexpr std::int64_t kPiece = 32 * kLine<T>;  // columns at a time, so that a piece of all rows stays in cache
    for (std::int64_t e = 0; e < n; e += kPiece)
      kernel.gram(rows_, columns_, std::min(kPiece, n - e), x + e, ldx, y + e, ldy, acc_);
  }

  T get(std::int64_t i, std::int64_t b) const {
    const T* lanes = acc_ + (i * columns_ + b) * kLine<T>;
    T sum = T(0);
    for (std::int64_t lane = 0; lane < kLine<T>; ++lane) sum += lanes[lane];
    return sum;
  }

 private:
  T* acc_;
  std::int64_t rows_ = 0;
  std::int64_t columns_ = 0;
};

}  // namespace mhla::cpu
