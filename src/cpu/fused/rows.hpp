// Rows of the fused operators on the CPU: reading, writing, sums along a row and over rows.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/fused_rows.hpp"
#include "cpu/element.hpp"
#include "mhla/parallel.hpp"

namespace mhla::cpu {

using fused::Rows;
using fused::Slots;

template <typename Element>
struct ArithmeticOf {
  using type = float;
};
template <>
struct ArithmeticOf<double> {
  using type = double;
};

struct RowIndex {
  std::int64_t batch = 0, token = 0, head = 0;
};

// Offset of the first element of a row.
template <typename Pointer>
std::int64_t offset_of(const BasicTensor<Pointer>& tensor, const RowIndex& row) {
  return row.batch * tensor.batch_stride + row.token * tensor.token_stride + row.head * tensor.head_stride;
}

template <typename Element, typename T>
void read_row(const Rows& rows, const ConstTensor& tensor, const RowIndex& row, T* values) {
  const auto* first = static_cast<const Element*>(tensor.data) + offset_of(tensor, row);
  const std::int64_t heads = rows.whole_tokens ? rows.heads : 1;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < rows.dim; ++d)
      values[h * rows.dim + d] = static_cast<T>(first[h * tensor.head_stride + d]);
}

template <typename Element, typename T>
void write_row(const Rows& rows, const Tensor& tensor, const RowIndex& row, const T* values) {
  auto* first = static_cast<Element*>(tensor.data) + offset_of(tensor, row);
  const std::int64_t heads = rows.whole_tokens ? rows.heads : 1;
  for (std::int64_t h = 0; h < heads; ++h)
    for (std::int64_t d = 0; d < rows.dim; ++d)
      first[h * tensor.head_stride + d] = static_cast<Element>(values[h * rows.dim + d]);
}

// `count` elements of any type; `otherwise` for each where there are none.
template <typename T>
void read_any(const void* data, DType dtype, std::int64_t first, std::int64_t count, T otherwise, T* values) {
  if (data == nullptr) {
    std::fill(values, values + count, otherwise);
    return;
  }
  with_element_type(dtype, [&](auto tag) {
    const auto* from = static_cast<const typename decltype(tag)::type*>(data) + first;
    for (std::int64_t i = 0; i < count; ++i) values[i] = static_cast<T>(from[i]);
  });
}

template <typename T>
void write_any(void* data, DType dtype, std::int64_t first, std::int64_t count, const T* values) {
  with_element_type(dtype, [&](auto tag) {
    using Element = typename decltype(tag)::type;
    auto* to = static_cast<Element*>(data) + first;
    for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Element>(values[i]);
  });
}

template <typename T>
std::vector<T> read_vector(const fused::ConstVector& vector, std::int64_t count, T otherwise) {
  std::vector<T> values(static_cast<std::size_t>(count));
  read_any(vector.data, vector.dtype, 0, count, otherwise, values.data());
  return values;
}

// Sum of term(0) .. term(count - 1), in eight interleaved sums that a compiler can keep in one register.
template <typename T, typename Term>
T sum(std::int64_t count, Term&& term) {
  std::array<T, 8> sums{};
  std::int64_t i = 0;
  for (; i + 8 <= count; i += 8)
    for (std::int64_t lane = 0; lane < 8; ++lane) sums[static_cast<std::size_t>(lane)] += term(i + lane);
  for (; i < count; ++i) sums[static_cast<std::size_t>(i % 8)] += term(i);
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

// visit(row) for the rows of one slot, in order.
template <typename Visit>
void for_each_row(const Rows& rows, const Slots& slots, std::int64_t slot, Visit&& visit) {
  const std::int64_t share = slot % slots.rows, all = rows.per_batch();
  const std::int64_t begin = all / slots.rows * share + std::min(share, all % slots.rows);
  const std::int64_t end = begin + all / slots.rows + (share < all % slots.rows ? 1 : 0);
  for (std::int64_t batch = slot / slots.rows; batch < rows.batch; batch += slots.batch)
    for (std::int64_t row = begin; row < end; ++row)
      visit(rows.whole_tokens ? RowIndex{batch, row, 0} : RowIndex{batch, row / rows.heads, row % rows.heads});
}

// Sum over slots [first, first + count) of one column block [slots, width].
template <typename T>
void add_slots(const T* partial, std::int64_t first, std::int64_t count, std::int64_t width, T* total) {
  std::fill(total, total + width, T(0));
  for (std::int64_t slot = first; slot < first + count; ++slot)
    for (std::int64_t i = 0; i < width; ++i) total[i] += partial[slot * width + i];
}

}  // namespace mhla::cpu
