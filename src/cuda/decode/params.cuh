// What the decoding kernels share: their arguments and which part of the work a thread block has.
#pragma once

#include "core/decode.hpp"
#include "cuda/decode/vectors.cuh"
#include "cuda/support/element.cuh"
#include "cuda/support/shape.cuh"

namespace mhla::cuda::decode {

constexpr int kThreads = 256;
constexpr int kChunk = 64;     // weights that are in shared memory at a time
constexpr int kKeyRows = 4;    // rows of k a thread takes part in at a time
constexpr int kValueRows = 8;  // rows of v

// Elements of k a thread loads at once.
template <typename E, int V>
constexpr int kKeys = V == 1 ? 1 : static_cast<int>(16 / sizeof(E));
// Rows of S and P that stand together: all of them exist or none, as Dk is a multiple of kKeys.
template <typename E, int V>
constexpr int kSet = kKeys<E, V> < 4 ? kKeys<E, V> : 4;

// How the threads of a thread block share the columns it has and the rows of k.
struct ThreadLayout {
  int key_dim, value_dim;
  int width, splits;        // columns of a thread block, a power of two; thread blocks of a kv head
  int lane_bits, key_bits;  // 2^: threads with V columns each that have a row of P; that read a row of k
  int chunk;                // rows of the open block that are read at a time
  int rows_bytes;           // of their k and v
};

constexpr int log2_ceil(int n) { return n <= 1 ? 0 : 1 + log2_ceil((n + 1) / 2); }

template <typename E, int V>
constexpr ThreadLayout layout_of(int key_dim, int value_dim, int width) {
  const int lane_bits = log2_ceil(width / V), key_lanes = log2_ceil((key_dim + kKeys<E, V> - 1) / kKeys<E, V>);
  const int key_bits = key_lanes < 5 ? key_lanes : 5, row_bytes = (key_dim + width) * static_cast<int>(sizeof(E));
  int chunk = kChunk;
  for (const int most : {kValueRows * (kThreads >> lane_bits), kKeyRows * (kThreads >> key_bits), 32768 / row_bytes})
    if (most < chunk) chunk = most < 1 ? 1 : most;
  return {key_dim,   value_dim, width, (value_dim + width - 1) / width,  // splits
          lane_bits, key_bits,  chunk, (chunk * row_bytes + 15) / 16 * 16};
}

// E: elements; A: of S and P. Pointers and shapes as in DecodeMemory.
template <typename E, typename A>
struct DecodeParams {
  using T = Accumulator<E>;
  ThreadLayout layout;
  int heads, kv_heads, mixed_heads, block_size;
  int queries, mixed_in_group;  // query heads that share a P; P's that share S
  Divider by_kv_heads, by_splits, by_queries, by_block_size;
  bool mixing_per_head;
  KeptBlocks policy;
  Feature feature;
  bool is_floor;  // phi(x) = max(x, floor)
  T floor, scale, eps;
  const T* mixing;
  ConstTensor q, k, v;
  Tensor o;
  A* S;
  T* z;
  A* P;
  T *P_z, *diagonal, *folded_S, *folded_z;
  E *k_rows, *v_rows;
  std::int64_t* tokens;
  std::int32_t* arrivals;
  int step_tokens, piece;  // tokens of the step; which of its pieces this launch is for
  bool is_last;            // piece
  int at_once;             // thread blocks that the device runs
};

// Thread blocks divide batch x kv heads x columns of v: S, P and v fall apart by columns, so no block waits for
// another. Inside, threads with V columns each stand beside one another in `groups` groups, which divide the rows.
// With D the layout is known to the compiler: D rows and columns.
template <typename E, int V, int D = 0>
struct Slice : ThreadLayout {
  int batch, group, kv_head, split;  // group: batch x kv heads
  int lane, groups, row, column;
  bool active;  // the columns exist

  template <typename A>
  __device__ explicit Slice(const DecodeParams<E, A>& c) : ThreadLayout(layout(c)) {
    int index, thread;  // asked for again each time: what follows from them does not stay in registers in between
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(index));
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    __builtin_assume(thread >= 0 && thread < kThreads);
    group = D > 0 ? index : c.by_splits.divide(index);
    split = index - group * splits;
    batch = c.by_kv_heads.divide(group);
    kv_head = group - batch * c.kv_heads;
    lane = thread & ((1 << lane_bits) - 1);
    groups = kThreads >> lane_bits;
    row = thread >> lane_bits;
    column = split * width + lane * V;
    active = column < value_dim;
  }

  // Sets of rows go to the groups in turn: set number `set` of the group begins at this row, steps(set) rows after the
  // group's first, which is the same for all threads.
  __device__ int first_row(int set) const { return row * kSet<E, V> + steps(set); }
  __device__ int steps(int set) const { return set * groups * kSet<E, V>; }
  __device__ bool has(int set) const { return active && first_row(set) < key_dim; }

  __device__ int key_lane() const { return static_cast<int>(threadIdx.x) & ((1 << key_bits) - 1); }
  __device__ int key_row() const { return static_cast<int>(threadIdx.x) >> key_bits; }
  __device__ int key_groups() const { return kThreads >> key_bits; }

 private:
  template <typename A>
  __device__ static ThreadLayout layout(const DecodeParams<E, A>& c) {
    if constexpr (D > 0) {
      constexpr ThreadLayout fixed = layout_of<E, V>(D, D, D);
      return fixed;
    } else {
      return c.layout;
    }
  }
};

template <typename E, typename A>
__device__ std::int64_t block_of(const DecodeParams<E, A>& c, std::int64_t token) {
  return token >> 31 == 0 ? c.by_block_size.divide(static_cast<int>(token)) : token / c.block_size;
}

// The part of a step that falls into one block: tokens [first, first + count) of the step are rows [filled, filled +
// count) of the block.
struct Piece {
  int filled = 0, first = 0, count = 0;

  Piece() = default;
  template <typename E, typename A>
  __device__ Piece(const DecodeParams<E, A>& c, std::int64_t seen)
      : filled(static_cast<int>(seen - block_of(c, seen) * c.block_size)) {
    if (c.piece > 0) {
      first = c.piece * c.block_size - filled;
      filled = 0;
    }
    count = max(0, min(c.step_tokens - first, c.block_size - filled));
  }
};

// Rows of the open block: of earlier steps in the state, of this one in the input.
template <typename E>
struct OpenRows {
  const E* kept;
  const E* given;  // where row 0 would be
  std::int64_t stride;
  int filled, dim;

  template <typename A, int V, int D>
  __device__ OpenRows(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, const Piece& piece, const E* rows,
                      const ConstTensor& x, int dim)
      : kept(rows + static_cast<std::int64_t>(slice.group) * c.block_size * dim),
        given(static_cast<const E*>(x.data) + slice.batch * x.batch_stride +
              (piece.first - piece.filled) * x.token_stride + slice.kv_head * x.head_stride),
        stride(x.token_stride), filled(piece.filled), dim(dim) {}

  // f(n, row begin + n) for n = 0, step, 2 step, ... with begin + n < end, at most kKept of them kept.
  template <int kKept, typename F>
  __device__ void for_each(int begin, int end, int step, F&& f) const {
    const E* row = kept + static_cast<std::int64_t>(begin) * dim;
    int n = 0;
#pragma unroll
    for (int u = 0; u < kKept; ++u) {
      if (begin + n >= min(end, filled)) break;
      f(n, row);
      n += step;
      row += step * dim;
    }
#pragma unroll 1
    for (; begin + n < end; n += step) f(n, given + (begin + n) * stride);
  }
};

template <typename E, typename A, int V, int D>
__device__ OpenRows<E> open_keys(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, const Piece& piece) {
  return {c, slice, piece, c.k_rows, c.k, slice.key_dim};
}
template <typename E, typename A, int V, int D>
__device__ OpenRows<E> open_values(const DecodeParams<E, A>& c, const Slice<E, V, D>& slice, const Piece& piece) {
  return {c, slice, piece, c.v_rows, c.v, slice.value_dim};
}

}  // namespace mhla::cuda::decode
