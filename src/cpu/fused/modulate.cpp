// y = v t + shift, with v = xhat weight + bias, t = 1 + scale and xhat = (x - mean) / deviation.
//
// Backward, with d_v = d_y t and d_xhat = d_v weight:
//   d_x = (d_xhat - mean(d_xhat) - xhat mean(d_xhat xhat)) / deviation
//   d_scale = d_y v    d_shift = d_y    d_weight = sum d_v xhat    d_bias = sum d_v
// Where t is the same for all tokens of a batch row, all sums follow from A = sum d_y xhat and E = sum d_y over it:
//   d_scale = weight A + bias E    d_shift = E    d_weight = sum_batch t A    d_bias = sum_batch t E
// Otherwise A and E are summed from d_v in place of d_y.
#include <cmath>

#include "cpu/fused/fused.hpp"
#include "cpu/fused/rows.hpp"

namespace mhla::cpu {
namespace {

using fused::Modulate;
using fused::Modulation;

template <typename T>
void read_rows(const Modulate::BasicRows<const void*>& from, const RowIndex& row, std::int64_t width, T* values) {
  read_any(from.data, from.dtype, row.batch * from.batch_stride + row.token * from.token_stride, width, T(0), values);
}

template <typename T>
void write_rows(const Modulate::BasicRows<void*>& to, const RowIndex& row, std::int64_t width, const T* values) {
  if (to.data != nullptr)
    write_any(to.data, to.dtype, row.batch * to.batch_stride + row.token * to.token_stride, width, values);
}

// Replaces x by xhat and returns 1 / deviation.
template <typename T>
T normalise(std::vector<T>& x, double eps) {
  const auto width = static_cast<std::int64_t>(x.size());
  const T mean = sum<T>(width, [&](std::int64_t i) { return x[i]; }) / static_cast<T>(width);
  for (T& value : x) value -= mean;
  const T squares = sum<T>(width, [&](std::int64_t i) { return x[i] * x[i]; });
  const T inverse_deviation = T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(eps));
  for (T& value : x) value *= inverse_deviation;
  return inverse_deviation;
}

template <typename Element>
void forward(const Modulate& p, const Modulate::Forward& args, const Parallel& parallel) {
  using T = typename ArithmeticOf<Element>::type;
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const std::int64_t width = rows.width();
  const std::vector<T> weight = read_vector(args.in.weight, width, T(1));
  const std::vector<T> bias = read_vector(args.in.bias, width, T(0));
  parallel.for_each(slots.count(), [&](std::int64_t slot) {
    std::vector<T> x(static_cast<std::size_t>(width)), scale(x.size()), shift(x.size());
    for_each_row(rows, slots, slot, [&](const RowIndex& row) {
      read_row<Element>(rows, args.in.x, row, x.data());
      read_rows(args.in.scale, row, width, scale.data());
      read_rows(args.in.shift, row, width, shift.data());
      normalise(x, p.eps);
      for (std::int64_t i = 0; i < width; ++i) x[i] = (x[i] * weight[i] + bias[i]) * (T(1) + scale[i]) + shift[i];
      write_row<Element>(rows, args.y, row, x.data());
    });
  });
}

template <typename Element>
void backward(const Modulate& p, const Modulate::Backward& args, const Parallel& parallel) {
  using T = typename ArithmeticOf<Element>::type;
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const std::int64_t width = rows.width();
  const bool per_token = p.modulation == Modulation::per_token;
  const std::vector<T> weight = read_vector(args.in.weight, width, T(1));
  const std::vector<T> bias = read_vector(args.in.bias, width, T(0));
  const bool sums_wanted = args.d_weight.data != nullptr || args.d_bias.data != nullptr ||
                           args.d_scale.data != nullptr || args.d_shift.data != nullptr;
  T* const all_A = sums_wanted ? static_cast<T*>(args.run.workspace) : nullptr;  // [slots, width]
  T* const all_E = sums_wanted ? all_A + slots.count() * width : nullptr;
  parallel.for_each(slots.count(), [&](std::int64_t slot) {
    std::vector<T> xhat(static_cast<std::size_t>(width)), d(xhat.size()), scale(xhat.size()), d_scale(xhat.size());
    T* const A = sums_wanted ? all_A + slot * width : nullptr;
    T* const E = sums_wanted ? all_E + slot * width : nullptr;
    if (sums_wanted) std::fill(A, A + width, T(0)), std::fill(E, E + width, T(0));
    for_each_row(rows, slots, slot, [&](const RowIndex& row) {
      read_row<Element>(rows, args.in.x, row, xhat.data());
      read_row<Element>(rows, args.d_y, row, d.data());
      read_rows(args.in.scale, row, width, scale.data());
      const T inverse_deviation = normalise(xhat, p.eps);
      if (per_token) {
        for (std::int64_t i = 0; i < width; ++i) d_scale[i] = d[i] * (xhat[i] * weight[i] + bias[i]);
        write_rows(args.d_scale, row, width, d_scale.data());
        write_rows(args.d_shift, row, width, d.data());
        for (std::int64_t i = 0; i < width; ++i) d[i] *= T(1) + scale[i];
      }
      if (sums_wanted)
        for (std::int64_t i = 0; i < width; ++i) A[i] += d[i] * xhat[i], E[i] += d[i];
      for (std::int64_t i = 0; i < width; ++i) d[i] *= per_token ? weight[i] : (T(1) + scale[i]) * weight[i];
      const T mean = sum<T>(width, [&](std::int64_t i) { return d[i]; }) / static_cast<T>(width);
      const T slope = sum<T>(width, [&](std::int64_t i) { return d[i] * xhat[i]; }) / static_cast<T>(width);
      for (std::int64_t i = 0; i < width; ++i) d[i] = inverse_deviation * (d[i] - mean - xhat[i] * slope);
      write_row<Element>(rows, args.d_x, row, d.data());
    });
  });
  if (!sums_wanted) return;

  std::vector<T> A(static_cast<std::size_t>(width)), E(A.size()), scale(A.size()), d_weight(A.size()), d_bias(A.size());
  for (std::int64_t batch = 0; batch < rows.batch; ++batch) {
    add_slots(all_A, batch * slots.rows, slots.rows, width, A.data());
    add_slots(all_E, batch * slots.rows, slots.rows, width, E.data());
    if (per_token) {
      for (std::int64_t i = 0; i < width; ++i) d_weight[i] += A[i], d_bias[i] += E[i];
      continue;
    }
    const RowIndex row{batch, 0, 0};
    read_rows(args.in.scale, row, width, scale.data());
    for (std::int64_t i = 0; i < width; ++i) {
      d_weight[i] += (T(1) + scale[i]) * A[i];
      d_bias[i] += (T(1) + scale[i]) * E[i];
      A[i] = weight[i] * A[i] + bias[i] * E[i];
    }
    write_rows(args.d_scale, row, width, A.data());
    write_rows(args.d_shift, row, width, E.data());
  }
  if (args.d_weight.data != nullptr) write_any(args.d_weight.data, args.d_weight.dtype, 0, width, d_weight.data());
  if (args.d_bias.data != nullptr) write_any(args.d_bias.data, args.d_bias.dtype, 0, width, d_bias.data());
}

}  // namespace

void forward(const Modulate& p, const Modulate::Forward& args, const Parallel& parallel) {
  with_element_type(p.dtype, [&](auto tag) { forward<typename decltype(tag)::type>(p, args, parallel); });
}

void backward(const Modulate& p, const Modulate::Backward& args, const Parallel& parallel) {
  with_element_type(p.dtype, [&](auto tag) { backward<typename decltype(tag)::type>(p, args, parallel); });
}

}  // namespace mhla::cpu
