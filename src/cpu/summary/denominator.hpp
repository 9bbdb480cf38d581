// The denominators of one unit (sequence, kv head) for one query head at a time.
//   paper:      den_t = q_t . z~_i + eps,                  z~_i = sum_b m[i, b] z_b
//   causal:     den_t = q_t . (z~_i + m[i, i] sum_{s <= t in block} k_s) + eps
//   authors:  den[i, w] = sum_b m[i, b] t[b, w] + eps,   t[b, w] = q[b, w] . z_b  (w: slot in the block)
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cpu_call.hpp"
#include "cpu/stages.hpp"

namespace mhla::cpu {

template <typename T>
class Denominator {
 public:
  Denominator(Workspace& w, const CpuCall<T>& call, std::int64_t blocks)
      : kernel_(call.kernel), eps_(static_cast<T>(call.p.options.eps)), dim_(call.p.key_dim), width_(padded<T>(dim_)),
        slot_width_(padded<T>(call.layout.capacity())) {
    if (!call.has_denominator()) return;
    z_ = w.take<T>(blocks * width_);
    if (call.has_paper_denominator()) mixed_z_ = w.take<T>(blocks * width_);
    if (call.has_authors_denominator()) {
      slots_ = w.take<T>(blocks * slot_width_);
      mixed_slots_ = w.take<T>(blocks * slot_width_);
    }
  }

  // Elsewhere than in the workspace.
  void place_sums(T* z, T* mixed_z) { z_ = z, mixed_z_ = mixed_z; }

  T* z(std::int64_t block) const { return z_ + block * width_; }
  T* mixed_z(std::int64_t local) const { return mixed_z_ + local * width_; }
  T* slots(std::int64_t block) const { return slots_ + block * slot_width_; }
  std::int64_t z_width() const { return width_; }
  std::int64_t slot_width() const { return slot_width_; }

  void clear_z(std::int64_t block) { std::fill_n(z(block), width_, T(0)); }
  void set_z(std::int64_t block, const T* from) {
    std::fill(std::copy_n(from, dim_, z(block)), z(block) + width_, T(0));
  }
  void get_z(std::int64_t block, bool reached, T* to) const {
    if (reached)
      std::copy_n(z(block), dim_, to);
    else
      std::fill_n(to, dim_, T(0));
  }
  void add_keys(std::int64_t block, std::int64_t tokens, const Tile<T>& keys) {
    for (std::int64_t panel = 0; panel < keys.panels(); ++panel)
      kernel_.add_rows(tokens, keys.padded_width(panel), keys.panel(panel), nullptr, z(block) + panel * kPanel<T>);
  }

  // z~ from z with the weights and sources of `like`.
  void mix_z(const Mixing<T>& like, T* strip) {
    mix_columns(kernel_, like.with(z_, width_, mixed_z_, width_), 0, width_, strip);
  }

  void paper(std::int64_t local, std::int64_t tokens, const Tile<T>& queries, T* out) const {
    dots(tokens, queries, mixed_z(local), out);
    for (std::int64_t t = 0; t < tokens; ++t) out[t] += eps_;
  }

  // Running sum of the open block's keys, starting from those of the initial state (null: none).
  void open_block(const T* initial_z, T* running_z) const {
    std::fill_n(running_z, width_, T(0));
    if (initial_z != nullptr) std::copy_n(initial_z, dim_, running_z);
  }

  void causal(std::int64_t local, std::int64_t tokens, T own_weight, const Tile<T>& queries, const Tile<T>& keys,
              T* running_z, T* out) const {
    dots(tokens, queries, mixed_z(local), out);
    for (std::int64_t t = 0; t < tokens; ++t) {
      T own = T(0);
      for (std::int64_t panel = 0; panel < keys.panels(); ++panel) {
        const std::int64_t at = t * kTileStride<T>;
        const std::int64_t width = keys.padded_width(panel);
        T* running = running_z + panel * kPanel<T>;
        kernel_.add_scaled(width, T(1), keys.panel(panel) + at, running);
        kernel_.row_dots(1, width, queries.panel(panel) + at, running, panel > 0, &own);
      }
      out[t] += own_weight * own + eps_;
    }
  }

  void clear_slots(std::int64_t block) { std::fill_n(slots(block), slot_width_, T(0)); }

  void query_slots(std::int64_t block, const Chunk& chunk, const Tile<T>& queries, T* scratch) {
    dots(chunk.tokens, queries, z(block), scratch);
    const T* from = scratch;
    for (std::int64_t r = 0; r < chunk.run_count; ++r) {
      const auto& run = chunk.runs[static_cast<std::size_t>(r)];
      std::copy_n(from, run.count, slots(block) + run.slot);
      from += run.count;
    }
  }

  void mix_slots(const Mixing<T>& like, T* strip) {
    mix_columns(kernel_, like.with(slots_, slot_width_, mixed_slots_, slot_width_), 0, slot_width_, strip);
  }

  void authors(std::int64_t local, const Chunk& chunk, T* out) const {
    for (std::int64_t r = 0; r < chunk.run_count; ++r) {
      const auto& run = chunk.runs[static_cast<std::size_t>(r)];
      const T* from = mixed_slots_ + local * slot_width_ + run.slot;
      for (std::int64_t n = 0; n < run.count; ++n) *out++ = from[n] + eps_;
    }
  }

 private:
  void dots(std::int64_t tokens, const Tile<T>& tile, const T* x, T* out) const {
    for (std::int64_t panel = 0; panel < tile.panels(); ++panel)
      kernel_.row_dots(tokens, tile.padded_width(panel), tile.panel(panel), x + panel * kPanel<T>, panel > 0, out);
  }

  const Kernels<T>& kernel_;
  T eps_;
  std::int64_t dim_, width_, slot_width_;
  T* z_ = nullptr;
  T* mixed_z_ = nullptr;
  T* slots_ = nullptr;
  T* mixed_slots_ = nullptr;
};

}  // namespace mhla::cpu
