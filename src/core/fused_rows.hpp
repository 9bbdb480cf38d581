// What the fused operators share on every device: rows of elements that are normalised together, and the
// slots in which gradients of weights are summed.
#pragma once

#include <algorithm>
#include <cstdint>

#include "mhla/fused.hpp"

namespace mhla::fused {

// The rows of a [batch, tokens, heads, dim] tensor: its tokens, or the heads of its tokens.
struct Rows {
  std::int64_t batch = 0, tokens = 0, heads = 0, dim = 0;
  bool whole_tokens = false;

  std::int64_t per_batch() const { return whole_tokens ? tokens : tokens * heads; }
  std::int64_t width() const { return whole_tokens ? heads * dim : dim; }
  bool empty() const { return batch == 0 || tokens == 0 || heads == 0; }
};

inline Rows rows_of(const RotaryFeatures& p) {
  return {p.batch, p.tokens, p.heads, p.dim, p.norm == NormScope::channels};
}
inline Rows rows_of(const GatedNorm& p) { return {p.batch, p.tokens, p.heads, p.dim, p.norm == NormScope::channels}; }
inline Rows rows_of(const Modulate& p) { return {p.batch, p.tokens, 1, p.channels, true}; }

// A sum over rows is cut into slots, each summed in order by one worker, and the slots are added in order afterwards.
// How many there are depends on the problem alone, so that results do not depend on the number of workers. Slot (i, j)
// takes the batch rows i, i + batch, ... and a share j of the rows of each.
struct Slots {
  std::int64_t batch = 1, rows = 1;

  constexpr std::int64_t count() const { return batch * rows; }
};

// `by_batch`: each batch row has slots of its own, for sums that are wanted per batch row.
inline Slots slots_of(const Rows& rows, Device device, bool by_batch) {
  const std::int64_t wanted = device == Device::cpu ? 64 : 1024;
  Slots slots;
  slots.batch = std::max<std::int64_t>(1, by_batch ? rows.batch : std::min(rows.batch, wanted));
  slots.rows = std::clamp<std::int64_t>(wanted / slots.batch, 1, std::max<std::int64_t>(1, rows.per_batch()));
  return slots;
}
inline Slots slots_of(const RotaryFeatures& p) { return slots_of(rows_of(p), p.device, false); }
inline Slots slots_of(const GatedNorm& p) { return slots_of(rows_of(p), p.device, false); }
inline Slots slots_of(const Modulate& p) { return slots_of(rows_of(p), p.device, true); }

}  // namespace mhla::fused
