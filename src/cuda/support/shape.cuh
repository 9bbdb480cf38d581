// What every kernel knows about a call, passed by value: sizes, the token layout, and how block numbers become rows of
// the stores.
//
//   entry     a source of the mixing: the blocks of the initial state first, then the blocks of this call
//   S store   one [key_pad, value_pad] matrix per (sequence, kv head, entry), entries adjacent
//   S~ store  one per (sequence, head, block of this call), blocks adjacent
#pragma once

#include <cstdint>

#include "cuda/support/element.cuh"
#include "mhla/attention.hpp"

namespace mhla::cuda {

// A sequence as the kernels see it; see mhla::Sequence.
struct SequenceRow {
  std::int64_t first_token = 0;
  std::int64_t tokens = 0;
  int batch = 0;
  int blocks = 0;
  int first_block = 0;  // blocks of all sequences before this one
  int index = 0;
};

// Division of numbers below 2^31 by one known only at run time.
struct Divider {
  std::uint32_t divisor = 1, inverse = 0;

  Divider() = default;
  __host__ __device__ explicit Divider(int d)
      : divisor(static_cast<std::uint32_t>(d)), inverse(d > 1 ? ~0U / static_cast<std::uint32_t>(d) + 1 : 0) {}
  __device__ int divide(int n) const {
    if (divisor <= 1) return n;
    const auto numerator = static_cast<std::uint32_t>(n);
    const std::uint32_t quotient = __umulhi(numerator, inverse);  // at most one too large
    return static_cast<int>(quotient - (quotient * divisor > numerator ? 1 : 0));
  }
  __device__ int remainder(int n) const { return n - divide(n) * static_cast<int>(divisor); }
};

struct Shape {
  int heads = 1, kv_heads = 1;
  int key_dim = 0, value_dim = 0;
  int key_pad = 0, value_pad = 0;  // multiples of 16

  int sequences = 1;
  int total_blocks = 0;                 // of all sequences
  const SequenceRow* packed = nullptr;  // in device memory; null: all sequences are alike
  SequenceRow uniform{};                // then: the first of them; `blocks` is the most of any in both cases
  bool is_line = true;
  int capacity = 1;
  int filled = 0;                                  // tokens of the first block that the initial state holds
  int sizes[3] = {1, 1, 1};                        // of a grid
  int extents[3] = {1, 1, 1};                      // of its full blocks
  int counts[3] = {1, 1, 1};                       // of its blocks along each axis
  Divider by_blocks{}, by_heads{}, by_kv_heads{};  // uniform.blocks, heads, kv_heads
  Divider by_counts[3] = {}, by_extents[3] = {};

  int initial = 0;       // entries of the initial state
  int initial_full = 0;  // those that are complete: the number of the first block of this call
  int final_blocks = 0;  // blocks of the final state

  const void* mixing = nullptr;  // accumulation type
  int mixing_blocks = 0;
  int matrices = 1;                         // all of `mixing`
  int row_matrices = 0, head_matrices = 0;  // from one batch row to the next, from one head to the next
  Masking masking = Masking::none;
  Feature feature{};
  double scale = 1, eps = 0;

  __device__ SequenceRow sequence(int s) const {
    if (packed != nullptr) return packed[s];
    SequenceRow row = uniform;
    row.batch = row.index = s;
    row.first_block = s * row.blocks;
    return row;
  }
  __device__ int entries(const SequenceRow& s) const { return initial + s.blocks; }

  // The work items of kernels that handle one block of tokens at a time: (sequence, block, head), heads running
  // fastest, so that thread blocks running together read neighbouring memory.
  struct Item {
    SequenceRow s;
    int head, block;
  };
  __device__ Item item(int number, bool of_queries) const {
    const Divider& by_head = of_queries ? by_heads : by_kv_heads;
    const int flat = by_head.divide(number);
    const int head = number - flat * static_cast<int>(by_head.divisor);
    if (packed == nullptr) {
      const int index = by_blocks.divide(flat);
      return {sequence(index), head, flat - index * uniform.blocks};
    }
    int low = 0, high = sequences - 1;
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (packed[middle].first_block <= flat) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return {packed[low], head, flat - packed[low].first_block};
  }

  __device__ std::int64_t entry_row(const SequenceRow& s, int kv_head, int entry) const {
    const std::int64_t before = s.first_block + static_cast<std::int64_t>(s.index) * initial;
    return before * kv_heads + static_cast<std::int64_t>(kv_head) * entries(s) + entry;
  }
  __device__ std::int64_t mixed_row(const SequenceRow& s, int head, int block) const {
    return static_cast<std::int64_t>(s.first_block) * heads + static_cast<std::int64_t>(head) * s.blocks + block;
  }
  __host__ __device__ std::int64_t matrix_size() const { return static_cast<std::int64_t>(key_pad) * value_pad; }

  // Number of the block an entry stands for, counted from the start of the sequence.
  __device__ int entry_block(int entry) const { return entry < initial ? entry : initial_full + entry - initial; }
  __device__ bool sees(int block, int entry) const {
    if (masking == Masking::none || entry < initial) return true;
    return masking == Masking::block_causal ? entry - initial <= block : entry - initial < block;
  }
  // Number of the matrix of a head. With a matrix per batch row, sequences are rows.
  __device__ int matrix(int sequence, int head) const { return sequence * row_matrices + head * head_matrices; }
  template <typename T>
  __device__ T weight(int matrix, int row, int column) const {
    const auto M = static_cast<std::int64_t>(mixing_blocks);
    return static_cast<const T*>(mixing)[matrix * M * M + row * M + column];
  }
  template <typename T>
  __device__ T mixing_weight(int matrix, int block, int entry) const {
    return sees(block, entry) ? weight<T>(matrix, initial_full + block, entry_block(entry)) : T(0);
  }
};

// The tokens of one block: how many, and where in the batch row.
class BlockTokens {
 public:
  __device__ BlockTokens(const Shape& shape, const SequenceRow& s, int block) {
    if (shape.is_line) {
      const std::int64_t begin = max(std::int64_t{0}, static_cast<std::int64_t>(block) * shape.capacity - shape.filled);
      const std::int64_t end = min(s.tokens, (static_cast<std::int64_t>(block) + 1) * shape.capacity - shape.filled);
      first_ = s.first_token + begin;
      count_ = static_cast<int>(end - begin);
      return;
    }
    is_line_ = false;
    const int line = shape.by_counts[2].divide(block);
    const int plane = shape.by_counts[1].divide(line);
    int at[3] = {plane, line - plane * shape.counts[1], block - line * shape.counts[2]}, extent[3];
#pragma unroll
    for (int axis = 0; axis < 3; ++axis) {
      at[axis] *= shape.extents[axis];
      extent[axis] = min(shape.extents[axis], shape.sizes[axis] - at[axis]);
    }
    row_ = shape.sizes[2];
    plane_ = shape.sizes[1] * shape.sizes[2];
    slot_row_ = shape.extents[2];
    slot_plane_ = shape.extents[1] * shape.extents[2];
    first_ = s.first_token + static_cast<std::int64_t>(at[0]) * plane_ + at[1] * row_ + at[2];
    count_ = extent[0] * extent[1] * extent[2];
    by_width_ = extent[2] == shape.extents[2] ? shape.by_extents[2] : Divider(extent[2]);
    by_height_ = extent[1] == shape.extents[1] ? shape.by_extents[1] : Divider(extent[1]);
  }

  __device__ int count() const { return count_; }
  __device__ std::int64_t operator[](int n) const {
    if (is_line_) return first_ + n;
    const GridPosition at = position(n);
    return first_ + static_cast<std::int64_t>(at.plane) * plane_ + static_cast<std::int64_t>(at.row) * row_ + at.column;
  }
  // Place inside a full block; see Partition::slot_of.
  __device__ int slot(int n) const {
    if (is_line_) return n;
    const GridPosition at = position(n);
    return at.plane * slot_plane_ + at.row * slot_row_ + at.column;
  }

 private:
  struct GridPosition {
    int plane, row, column;
  };
  __device__ GridPosition position(int n) const {
    const int line = by_width_.divide(n);
    const int plane = by_height_.divide(line);
    return {plane, line - plane * static_cast<int>(by_height_.divisor), n - line * static_cast<int>(by_width_.divisor)};
  }

  std::int64_t first_ = 0;
  int count_ = 0;
  bool is_line_ = true;
  int row_ = 0, plane_ = 0;            // tokens from one row or plane of the grid to the next
  int slot_row_ = 0, slot_plane_ = 0;  // the same in slots
  Divider by_width_, by_height_;
};

// One [tokens, dim] head of a [batch, tokens, heads, dim] tensor.
template <typename E>
struct HeadView {
  E* data = nullptr;
  int token_stride = 0;
  __device__ E* row(std::int64_t token) const { return data + token * token_stride; }
};

// A token tensor as a kernel argument. `vectors`: rows of every head start on 16-byte borders.
template <typename E>
struct TokenTensor {
  E* data = nullptr;
  std::int64_t batch_stride = 0, head_stride = 0;
  int token_stride = 0;
  int dim = 0;
  bool vectors = false;

  __device__ HeadView<E> head(int batch, int h) const {
    return {data + batch * batch_stride + h * head_stride, token_stride};
  }
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
};

// One number per token and head, contiguous [batch, tokens, heads].
template <typename T>
struct TokenScalars {
  T* data = nullptr;
  std::int64_t tokens = 0;
  int heads = 1;
  __device__ T& at(int batch, std::int64_t token, int head) const {
    return data[(static_cast<std::int64_t>(batch) * tokens + token) * heads + head];
  }
  __host__ __device__ explicit operator bool() const { return data != nullptr; }
};

}  // namespace mhla::cuda
