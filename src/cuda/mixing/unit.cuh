// The work items of a mixing.
#pragma once

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

// One (sequence, head) of a mixing.
template <bool kAdjoint>
struct Unit {
  SequenceRow s;
  int head;  // query head, or kv head of the adjoint
  int rows, depth;
  std::int64_t from, to;  // first rows of the stores

  __device__ Unit(const Shape& shape, int unit) {
    const int heads = kAdjoint ? shape.kv_heads : shape.heads;
    const int group = shape.heads / shape.kv_heads;
    s = shape.sequence(unit / heads);
    head = unit % heads;
    rows = kAdjoint ? shape.entries(s) : s.blocks;
    depth = kAdjoint ? s.blocks : shape.entries(s);
    from = kAdjoint ? shape.mixed_row(s, head * group, 0) : shape.entry_row(s, head / group, 0);
    to = kAdjoint ? shape.entry_row(s, head, 0) : shape.mixed_row(s, head, 0);
  }

  // Weights outside [first, last) are zero for the rows [row, row + count).
  __device__ int first(const Shape& shape, int row) const {
    return kAdjoint && shape.masking != Masking::none ? max(0, row - shape.initial) : 0;
  }
  __device__ int last(const Shape& shape, int row, int count) const {
    return kAdjoint || shape.masking == Masking::none ? depth : min(depth, shape.initial + row + count);
  }
};

}  // namespace mhla::cuda
