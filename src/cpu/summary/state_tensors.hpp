// Between the contiguous summaries a caller holds, [sequences, kv heads, blocks, Dk, Dv], and the padded ones the
// algorithms work on, which the backward pass keeps transposed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cpu_call.hpp"
#include "cpu/kernels.hpp"

namespace mhla::cpu {

// The blocks of one unit (sequence, kv head) in a pair of state tensors.
template <typename T, typename Pointer>
class StateTensors {
 public:
  using Element = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const T, T>;

  StateTensors(const CpuCall<T>& call, const BasicSummaries<Pointer>& tensors, std::int64_t blocks)
      : tensors_(tensors), blocks_(blocks), kv_heads_(call.p.kv_heads), key_dim_(call.p.key_dim),
        value_dim_(call.p.value_dim) {}

  void open(const Sequence& sequence, std::int64_t kv_head) {
    first_ = (sequence.index * kv_heads_ + kv_head) * blocks_;
  }

  bool has_S() const { return tensors_.S != nullptr; }
  bool has_z() const { return tensors_.z != nullptr; }
  std::int64_t blocks() const { return blocks_; }
  Element* S(std::int64_t block) const {
    return static_cast<Element*>(tensors_.S) + (first_ + block) * key_dim_ * value_dim_;
  }
  Element* z(std::int64_t block) const { return static_cast<Element*>(tensors_.z) + (first_ + block) * key_dim_; }

 private:
  BasicSummaries<Pointer> tensors_;
  std::int64_t blocks_, kv_heads_, key_dim_, value_dim_;
  std::int64_t first_ = 0;
};

// padded[r, c] (+)= factor * plain[r, c]
template <typename T>
void load_summary(const Problem& p, const T* plain, T factor, bool accumulate, T* padded_summary) {
  const std::int64_t ld = padded<T>(p.value_dim);
  for (std::int64_t r = 0; r < p.key_dim; ++r) {
    T* to = padded_summary + r * ld;
    if (!accumulate) std::fill_n(to, ld, T(0));
    for (std::int64_t c = 0; c < p.value_dim; ++c) to[c] += factor * plain[r * p.value_dim + c];
  }
}

// transposed[c, r] (+)= plain[r, c]
template <typename T>
void load_transposed(const Problem& p, const T* plain, bool accumulate, T* transposed) {
  const std::int64_t ld = padded<T>(p.key_dim);
  for (std::int64_t c = 0; c < p.value_dim; ++c) {
    T* to = transposed + c * ld;
    if (!accumulate) std::fill_n(to, ld, T(0));
    for (std::int64_t r = 0; r < p.key_dim; ++r) to[r] += plain[r * p.value_dim + c];
  }
}

template <typename T>
void store_summary(const Problem& p, const T* padded_summary, T* plain) {
  for (std::int64_t r = 0; r < p.key_dim; ++r)
    std::copy_n(padded_summary + r * padded<T>(p.value_dim), p.value_dim, plain + r * p.value_dim);
}

template <typename T>
void store_transposed(const Problem& p, const T* transposed, T* plain) {
  for (std::int64_t r = 0; r < p.key_dim; ++r)
    for (std::int64_t c = 0; c < p.value_dim; ++c)
      plain[r * p.value_dim + c] = transposed[c * padded<T>(p.key_dim) + r];
}

}  // namespace mhla::cpu
