// d_mixing, summed over sequences and heads in an order that does not depend on threads: units are cut into a fixed
// number of consecutive parts, each part sums on its own, and the parts are added in order at the end. With a matrix
// per batch row there is nothing to add: every unit writes the gradients of its own matrices where they belong.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cpu_call.hpp"
#include "cpu/kernels.hpp"

namespace mhla::cpu {

template <typename T>
class MixingGradient {
 public:
  // d_mixing null: not wanted.
  MixingGradient(Workspace& w, const CpuCall<T>& call, T* d_mixing)
      : call_(call), d_mixing_(d_mixing), used_(call.most_blocks()),
        in_place_(call.p.mixing_per_row && call.p.cu_seqlens.empty()),
        summed_(in_place_ ? 0 : call.p.mixing_matrices()) {
    constexpr std::int64_t kMostElements = std::int64_t{1} << 24;
    const std::int64_t affordable = kMostElements / std::max<std::int64_t>(summed_ * used_ * used_, 1);
    parts_ = std::min(call.units(), std::clamp<std::int64_t>(affordable, 8, 64));
    sums_ = w.take<T>(parts_ * summed_ * used_ * used_);
    if (d_mixing != nullptr)
      std::fill_n(d_mixing, call.p.mixing_matrices() * call.p.mixing_blocks * call.p.mixing_blocks, T(0));
  }

  std::int64_t parts() const { return parts_; }
  std::int64_t first_unit(std::int64_t part) const { return part * call_.units() / parts_; }

  void clear(std::int64_t part) { std::fill_n(sum(part, 0), summed_ * used_ * used_, T(0)); }

  // Row i of the gradient of a query head's matrix, where the gradient is wanted.
  T* row(std::int64_t part, const Sequence& s, std::int64_t head, std::int64_t i) {
    const std::int64_t matrix = call_.p.matrix_of(s.batch, head);
    return in_place_ ? result(matrix, i) : sum(part, matrix) + i * used_;
  }

  void finish() {
    const std::int64_t both = std::min(used_, call_.p.mixing_blocks);
    if (d_mixing_ == nullptr) return;
    for (std::int64_t part = 0; part < parts_; ++part)
      for (std::int64_t matrix = 0; matrix < summed_; ++matrix)
        for (std::int64_t i = 0; i < both; ++i) {
          const T* from = sum(part, matrix) + i * used_;
          T* to = result(matrix, i);
          for (std::int64_t b = 0; b < both; ++b) to[b] += from[b];
        }
  }

 private:
  T* sum(std::int64_t part, std::int64_t matrix) const { return sums_ + (part * summed_ + matrix) * used_ * used_; }
  T* result(std::int64_t matrix, std::int64_t i) const {
    return d_mixing_ + (matrix * call_.p.mixing_blocks + i) * call_.p.mixing_blocks;
  }

  const CpuCall<T>& call_;
  T* d_mixing_;
  std::int64_t used_;
  bool in_place_;
  std::int64_t summed_;  // matrices that parts add to
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
