// The dense form: token pairs weighted by the mixing matrix, no summaries.
//
//   out_r = factor sum_o m[block(r), block(o)] (x_r . y_o + g) rest_o
//
// which is, as in readout.hpp, the output and three of the gradients by the choice of x, y and rest. Rows are the
// tokens block by block, every block padded to a multiple of 16 rows, so that one weight scales a whole 16 x 8 tile.
#pragma once

#include <cuda_runtime.h>

#include "cuda/support/shape.cuh"

namespace mhla::cuda {

template <typename E>
struct DenseArgs {
  using T = Accumulator<E>;
  Shape shape;
  const int* order = nullptr;  // token of every row, -1 for padding; see write_order(). Null: the kernel computes it
  bool of_queries = true;      // rows are queries, else keys
  TokenTensor<const E> x{}, y{}, rest{};
  Feature x_feature{}, y_feature{}, rest_feature{};
  TokenScalars<const T> g{};  // by query token; null: zero
  double factor = 1;
  bool normalize = false;  // divide by factor sum_o m (x_r . y_o) + eps
  TokenTensor<E> out{};

  // The result is a gradient of phi(raw): chain through phi.
  TokenTensor<const E> raw{};
  Feature raw_feature{};

  // [sequences, heads, row tiles of 16, column tiles, blocks]: factor sum of (x_r . y_o + g) (phi(raw_r) . rest_o), the
  // terms of the mixing gradient. Null: not wanted.
  T* pair_sums = nullptr;
};

inline int dense_capacity(const Shape& shape) { return (shape.capacity + 15) / 16 * 16; }
inline std::int64_t dense_rows(const Shape& shape) {
  return static_cast<std::int64_t>(shape.uniform.blocks) * dense_capacity(shape);
}
// A table of rows saves the kernel some arithmetic: less than the launch that writes it where one wave of thread blocks
// has all rows of all heads.
inline bool wants_order(const Shape& shape) {
  constexpr std::int64_t kFewRows = 1 << 14;
  return dense_rows(shape) * shape.sequences * shape.heads > kFewRows;
}
void write_order(const Shape& shape, int* order, cudaStream_t stream);  // dense_rows() numbers

// Compiled apart for every arithmetic: dense_*.cu.
template <typename Math>
void multiply_pairs(const DenseArgs<typename Math::Element>& args, cudaStream_t stream);

template <typename E>
struct DenseForwardArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{};
  TokenTensor<E> o{};
  bool normalize = false;
};
// o. `order`: workspace for write_order(), or null.
template <typename Math>
void dense_forward(const DenseForwardArgs<typename Math::Element>& args, int* order, cudaStream_t stream);

template <typename E>
struct DenseBackwardArgs {
  Shape shape;
  TokenTensor<const E> q{}, k{}, v{}, o{}, d_o{};
  TokenTensor<E> d_q{}, d_k{}, d_v{};
  bool normalize = false;
  // [sequences, heads, M query blocks, M key blocks]: terms of the mixing gradient. Null: not wanted.
  Accumulator<E>* pair_sums = nullptr;
};
// All gradients of whole heads on the chip; false where a call needs one multiply_pairs() for each.
template <typename E>
bool dense_backward(const DenseBackwardArgs<E>& args, cudaStream_t stream);

}  // namespace mhla::cuda
