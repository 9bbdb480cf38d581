// The summaries a forward call leaves for the backward one: of every unit S_b and S~_i, [Dk, padded(Dv)] each, and with
// a denominator z_b and z~_i.
#pragma once

#include <cstddef>

#include "cpu/cpu_call.hpp"
#include "cpu/stages.hpp"

namespace mhla::cpu {

template <typename T>
class Kept {
 public:
  Kept(const CpuCall<T>& call, void* base) : base_(static_cast<T*>(base)), blocks_(call.most_blocks()) {
    stride_ = summary_stride<T>(call.p.key_dim, call.p.value_dim);
    width_ = call.has_denominator() ? padded<T>(call.p.key_dim) : 0;
  }

  // Summaries of causal calls end in pieces of blocks, and those of grouped heads are mixed once per query head.
  static std::size_t bytes(const CpuCall<T>& call) {
    if (call.p.options.masking != Masking::none || call.group > 1) return 0;
    return static_cast<std::size_t>(call.units() * Kept(call, nullptr).unit_size()) * sizeof(T);
  }

  bool given() const { return base_ != nullptr; }
  void open(std::int64_t unit) { unit_ = base_ + unit * unit_size(); }

  T* S(std::int64_t block) const { return unit_ + block * stride_; }
  T* mixed(std::int64_t block) const { return S(blocks_) + block * stride_; }
  T* z() const { return mixed(blocks_); }
  T* mixed_z() const { return z() + blocks_ * width_; }

 private:
  std::int64_t unit_size() const { return 2 * blocks_ * (stride_ + width_); }

  T* base_;
  T* unit_ = nullptr;
  std::int64_t blocks_;
  std::int64_t stride_;
  std::int64_t width_;
};

}  // namespace mhla::cpu
