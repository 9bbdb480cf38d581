// y = xhat weight silu(gate), with xhat = x / rms(x).
//
// Backward, with n = xhat weight and d_n = d_y silu(gate):
//   d_gate = d_y n silu'(gate)    d_weight = sum d_n xhat    d_x = (d_xhat - xhat mean(d_xhat xhat)) / rms
#include <cmath>

#include "cpu/fused/fused.hpp"
#include "cpu/fused/rows.hpp"

namespace mhla::cpu {
namespace {

using fused::GatedNorm;

template <typename T>
T sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <typename Element>
void forward(const GatedNorm& p, const GatedNorm::Forward& args, const Parallel& parallel) {
  using T = typename ArithmeticOf<Element>::type;
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const std::int64_t width = rows.width();
  const std::vector<T> weight = read_vector(args.in.weight, width, T(1));
  parallel.for_each(slots.count(), [&](std::int64_t slot) {
    std::vector<T> x(static_cast<std::size_t>(width)), gate(x.size());
    for_each_row(rows, slots, slot, [&](const RowIndex& row) {
      read_row<Element>(rows, args.in.x, row, x.data());
      const T squares = sum<T>(width, [&](std::int64_t i) { return x[i] * x[i]; });
      const T inverse_rms = T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(p.eps));
      for (std::int64_t i = 0; i < width; ++i) x[i] *= inverse_rms * weight[i];
      if (args.in.gate.data != nullptr) {
        read_row<Element>(rows, args.in.gate, row, gate.data());
        for (std::int64_t i = 0; i < width; ++i) x[i] *= gate[i] * sigmoid(gate[i]);
      }
      write_row<Element>(rows, args.y, row, x.data());
    });
  });
}

template <typename Element>
void backward(const GatedNorm& p, const GatedNorm::Backward& args, const Parallel& parallel) {
  using T = typename ArithmeticOf<Element>::type;
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const std::int64_t width = rows.width();
  const std::vector<T> weight = read_vector(args.in.weight, width, T(1));
  T* const partial = args.d_weight.data != nullptr ? static_cast<T*>(args.run.workspace) : nullptr;  // [slots, width]
  parallel.for_each(slots.count(), [&](std::int64_t slot) {
    std::vector<T> xhat(static_cast<std::size_t>(width)), gate(xhat.size()), d(xhat.size()), d_gate(xhat.size());
    T* const d_weight = partial != nullptr ? partial + slot * width : nullptr;
    if (d_weight != nullptr) std::fill(d_weight, d_weight + width, T(0));
    for_each_row(rows, slots, slot, [&](const RowIndex& row) {
      read_row<Element>(rows, args.in.x, row, xhat.data());
      read_row<Element>(rows, args.d_y, row, d.data());
      const T squares = sum<T>(width, [&](std::int64_t i) { return xhat[i] * xhat[i]; });
      const T inverse_rms = T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(p.eps));
      for (std::int64_t i = 0; i < width; ++i) xhat[i] *= inverse_rms;
      if (args.in.gate.data != nullptr) {
        read_row<Element>(rows, args.in.gate, row, gate.data());
        for (std::int64_t i = 0; i < width; ++i) {
          const T s = sigmoid(gate[i]);
          d_gate[i] = d[i] * xhat[i] * weight[i] * s * (T(1) + gate[i] * (T(1) - s));
          d[i] *= gate[i] * s;
        }
        write_row<Element>(rows, args.d_gate, row, d_gate.data());
      }
      if (d_weight != nullptr)
        for (std::int64_t i = 0; i < width; ++i) d_weight[i] += d[i] * xhat[i];
      for (std::int64_t i = 0; i < width; ++i) d[i] *= weight[i];
      const T mean = sum<T>(width, [&](std::int64_t i) { return d[i] * xhat[i]; }) / static_cast<T>(width);
      for (std::int64_t i = 0; i < width; ++i) d[i] = inverse_rms * (d[i] - xhat[i] * mean);
      write_row<Element>(rows, args.d_x, row, d.data());
    });
  });
  if (partial == nullptr) return;
  std::vector<T> total(static_cast<std::size_t>(width));
  add_slots(partial, 0, slots.count(), width, total.data());
  write_any(args.d_weight.data, args.d_weight.dtype, 0, width, total.data());
}

}  // namespace

void forward(const GatedNorm& p, const GatedNorm::Forward& args, const Parallel& parallel) {
  with_element_type(p.dtype, [&](auto tag) { forward<typename decltype(tag)::type>(p, args, parallel); });
}

void backward(const GatedNorm& p, const GatedNorm::Backward& args, const Parallel& parallel) {
  with_element_type(p.dtype, [&](auto tag) { backward<typename decltype(tag)::type>(p, args, parallel); });
}

}  // namespace mhla::cpu
