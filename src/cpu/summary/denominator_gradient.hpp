// Gradients through the denominators of denominator.hpp. d_den_t = -(d_o_t . o_t) / den_t; from there
//   paper:      d_q_t += d_den_t z~_i,   d_z~_i = sum_t d_den_t q_t,   d_z_b = sum_i m[i, b] d_z~_i
//   authors:  dt[b, w] = sum_i m[i, b] d_den[i, w],   d_q[b, w] += dt[b, w] z_b,   d_z_b = sum_w dt[b, w] q[b, w]
// and every key of block b receives d_z_b.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/cpu_call.hpp"
#include "cpu/stages.hpp"
#include "cpu/summary/denominator.hpp"

namespace mhla::cpu {

template <typename T>
class DenominatorGradient {
 public:
  DenominatorGradient(Workspace& w, const CpuCall<T>& call, const Denominator<T>& forward, std::int64_t blocks)
      : kernel_(call.kernel), forward_(forward) {
    if (!call.has_denominator()) return;
    d_z_ = w.take<T>(blocks * forward.z_width());
    if (call.has_paper_denominator()) d_mixed_z_ = w.take<T>(blocks * forward.z_width());
    if (call.has_authors_denominator()) {
      d_slots_ = w.take<T>(blocks * forward.slot_width());
      mixed_d_slots_ = w.take<T>(blocks * forward.slot_width());
    }
  }

  T* d_z(std::int64_t block) const { return d_z_ + block * forward_.z_width(); }
  T* d_mixed_z(std::int64_t local) const { return d_mixed_z_ + local * forward_.z_width(); }
  T* d_slots(std::int64_t block) const { return d_slots_ + block * forward_.slot_width(); }

  void clear_mixed(std::int64_t local) { std::fill_n(d_mixed_z(local), forward_.z_width(), T(0)); }
  void clear_slots(std::int64_t block) { std::fill_n(d_slots(block), forward_.slot_width(), T(0)); }
  void clear_z(std::int64_t block) { std::fill_n(d_z(block), forward_.z_width(), T(0)); }

  // d_z~_i += sum_t d_den_t q_t
  void add_queries(T* to, std::int64_t tokens, const T* factor, const Tile<T>& queries) const {
    for (std::int64_t panel = 0; panel < queries.panels(); ++panel)
      kernel_.add_rows(tokens, queries.padded_width(panel), queries.panel(panel), factor, to + panel * kPanel<T>);
  }

  // d_q_t += factor_t x
  void add_to_rows(std::int64_t tokens, const T* factor, const T* x, const Tile<T>& rows) const {
    for (std::int64_t panel = 0; panel < rows.panels(); ++panel)
      kernel_.add_outer(tokens, rows.padded_width(panel), factor, x + panel * kPanel<T>, rows.panel(panel));
  }

  void put_slots(std::int64_t block, const Chunk& chunk, const T* d_den) const {
    for_each_slot(chunk, [&](std::int64_t t, std::int64_t slot) { d_slots(block)[slot] = d_den[t]; });
  }
  void get_mixed_slots(std::int64_t block, const Chunk& chunk, T* out) const {
    const T* from = mixed_d_slots_ + block * forward_.slot_width();
    for_each_slot(chunk, [&](std::int64_t t, std::int64_t slot) { out[t] = from[slot]; });
  }

  // Back through the mixing, with the weights and sources of `like`: blocks from `first` on, from query blocks from
  // `first_source` on.
  void mix_z(const Mixing<T>& like, std::int64_t first, std::int64_t first_source, T* strip) {
    const std::int64_t width = forward_.z_width();
    mix_columns(kernel_, like.with(d_mixed_z(first_source), width, d_z(first), width), 0, width, strip);
  }
  void mix_slots(const Mixing<T>& like, T* strip) {
    const std::int64_t width = forward_.slot_width();
    mix_columns(kernel_, like.with(d_slots_, width, mixed_d_slots_, width), 0, width, strip);
  }

  // The part of a token-causal block's own keys: d_q_t += d_den_t m z_t with z_t the running sum up to t.
  // Returns sum_t d_den_t q_t . z_t, the gradient of m = m[i, i].
  T causal_queries(std::int64_t tokens, T own_weight, const T* d_den, const Tile<T>& queries, const Tile<T>& keys,
                   T* running_z, const Tile<T>& d_queries) const {
    T d_weight = T(0);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t at = t * kTileStride<T>;
      T own = T(0);
      for (std::int64_t panel = 0; panel < keys.panels(); ++panel) {
        const std::int64_t width = keys.padded_width(panel);
        T* running = running_z + panel * kPanel<T>;
        kernel_.add_scaled(width, T(1), keys.panel(panel) + at, running);
        kernel_.row_dots(1, width, queries.panel(panel) + at, running, panel > 0, &own);
        kernel_.add_scaled(width, own_weight * d_den[t], running, d_queries.panel(panel) + at);
      }
      d_weight += d_den[t] * own;
    }
    return d_weight;
  }

  // d_k_s += sum_{t >= s} m d_den_t q_t; `running` carries the sum over later chunks.
  void causal_keys(std::int64_t tokens, T own_weight, const T* d_den, const Tile<T>& queries, T* running,
                   const Tile<T>& d_keys) const {
    for (std::int64_t t = tokens - 1; t >= 0; --t)
      for (std::int64_t panel = 0; panel < queries.panels(); ++panel) {
        const std::int64_t width = queries.padded_width(panel);
        const std::int64_t at = t * kTileStride<T>;
        T* sum = running + panel * kPanel<T>;
        kernel_.add_scaled(width, own_weight * d_den[t], queries.panel(panel) + at, sum);
        kernel_.add_scaled(width, T(1), sum, d_keys.panel(panel) + at);
      }
  }

 private:
  template <typename Visit>
  static void for_each_slot(const Chunk& chunk, Visit&& visit) {
    std::int64_t t = 0;
    for (std::int64_t r = 0; r < chunk.run_count; ++r) {
      const auto& run = chunk.runs[static_cast<std::size_t>(r)];
      for (std::int64_t n = 0; n < run.count; ++n) visit(t++, run.slot + n);
    }
  }

  const Kernels<T>& kernel_;
  const Denominator<T>& forward_;
  T* d_z_ = nullptr;
  T* d_mixed_z_ = nullptr;
  T* d_slots_ = nullptr;
  T* mixed_d_slots_ = nullptr;
};

}  // namespace mhla::cpu
