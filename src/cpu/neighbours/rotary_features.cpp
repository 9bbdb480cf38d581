// y = rotate(f), with f = phi(u) + feature_eps, u = xhat weight and xhat = x / rms(x); without a norm u = x.
//
// Backward, with d_f = rotate^T(d_y) + d_plain and d_u = d_f phi'(u):
//   d_weight = sum d_u xhat    d_x = (d_xhat - xhat mean(d_xhat xhat)) / rms, d_xhat = d_u weight
#include <cmath>

#include "core/feature_map.hpp"
#include "cpu/neighbours/neighbours.hpp"
#include "cpu/neighbours/rows.hpp"

namespace mhla::cpu {
namespace {

using neighbours::NormScope;
using neighbours::RotaryFeatures;
using neighbours::RotaryLayout;

// Turns the pairs of every head of a row, forth (`direction` 1) or back (-1), in place.
template <typename T>
void rotate(const RotaryFeatures& p, const RotaryFeatures::Inputs& in, const RowIndex& row, int direction,
            std::vector<T>& values) {
  const neighbours::Rotary& rotary = p.rotary;
  const std::int64_t pairs = rotary.all_pairs();
  if (rotary.axes == 0 || pairs == 0) return;
  std::array<std::int64_t, 3> coordinates{};
  std::int64_t token = row.token;
  for (int axis = rotary.axes - 1; axis >= 0; --axis) {
    const auto a = static_cast<std::size_t>(axis);
    coordinates[a] = token % rotary.sizes[a];
    token /= rotary.sizes[a];
  }
  const bool half = rotary.layout == RotaryLayout::half;
  std::int64_t pair = 0, table = row.batch * in.table_stride;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rotary.axes); ++axis) {
    const std::int64_t entry = table + coordinates[axis] * rotary.pairs[axis];
    for (std::int64_t j = 0; j < rotary.pairs[axis]; ++j, ++pair) {
      const T cos = static_cast<const T*>(in.cos)[entry + j];
      const T sin = static_cast<const T*>(in.sin)[entry + j] * static_cast<T>(direction);
      for (auto head = values.begin(); head != values.end(); head += p.dim) {
        T& a = head[half ? pair : 2 * pair];
        T& b = head[half ? pair + pairs : 2 * pair + 1];
        const T turned = a * cos - b * sin;
        b = a * sin + b * cos;
        a = turned;
      }
    }
    table += rotary.sizes[axis] * rotary.pairs[axis];
  }
}

template <typename T>
T inverse_rms(const std::vector<T>& x, double eps) {
  const auto width = static_cast<std::int64_t>(x.size());
  const T squares = sum<T>(width, [&](std::int64_t i) { return x[i] * x[i]; });
  return T(1) / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(eps));
}

template <typename Element>
void forward(const RotaryFeatures& p, const RotaryFeatures::Forward& args, const Parallel& parallel) {
  using T = typename ArithmeticOf<Element>::type;
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const std::int64_t width = rows.width();
  const std::vector<T> weight = read_vector(args.in.weight, width, T(1));
  parallel.for_each(slots.count(), [&](std::int64_t slot) {
    std::vector<T> f(static_cast<std::size_t>(width));
    for_each_row(rows, slots, slot, [&](const RowIndex& row) {
      read_row<Element>(rows, args.in.x, row, f.data());
      if (p.norm != NormScope::none) {
        const T factor = inverse_rms(f, p.norm_eps);
        for (std::int64_t i = 0; i < width; ++i) f[i] *= factor * weight[i];
      }
      for (std::int64_t i = 0; i < width; ++i) f[i] = phi(p.feature_map, f[i]) + static_cast<T>(p.feature_eps);
      if (args.plain.data != nullptr) write_row<Element>(rows, args.plain, row, f.data());
      rotate(p, args.in, row, 1, f);
      write_row<Element>(rows, args.y, row, f.data());
    });
  });
}

template <typename Element>
void backward(const RotaryFeatures& p, const RotaryFeatures::Backward& args, const Parallel& parallel) {
  using T = typename ArithmeticOf<Element>::type;
  const Rows rows = rows_of(p);
  const Slots slots = slots_of(p);
  const std::int64_t width = rows.width();
  const std::vector<T> weight = read_vector(args.in.weight, width, T(1));
  T* const partial = args.d_weight.data != nullptr ? static_cast<T*>(args.run.workspace) : nullptr;  // [slots, width]
  parallel.for_each(slots.count(), [&](std::int64_t slot) {
    std::vector<T> xhat(static_cast<std::size_t>(width)), d(xhat.size()), d_plain(xhat.size());
    T* const d_weight = partial != nullptr ? partial + slot * width : nullptr;
    if (d_weight != nullptr) std::fill(d_weight, d_weight + width, T(0));
    for_each_row(rows, slots, slot, [&](const RowIndex& row) {
      read_row<Element>(rows, args.in.x, row, xhat.data());
      if (args.d_y.data != nullptr) {
        read_row<Element>(rows, args.d_y, row, d.data());
        rotate(p, args.in, row, -1, d);
      } else {
        std::fill(d.begin(), d.end(), T(0));
      }
      if (args.d_plain.data != nullptr) {
        read_row<Element>(rows, args.d_plain, row, d_plain.data());
        for (std::int64_t i = 0; i < width; ++i) d[i] += d_plain[i];
      }
      if (p.norm == NormScope::none) {
        for (std::int64_t i = 0; i < width; ++i) d[i] *= phi_derivative(p.feature_map, xhat[i]);
      } else {
        const T factor = inverse_rms(xhat, p.norm_eps);
        for (std::int64_t i = 0; i < width; ++i) {
          xhat[i] *= factor;
          d[i] *= phi_derivative(p.feature_map, xhat[i] * weight[i]);
        }
        if (d_weight != nullptr)
          for (std::int64_t i = 0; i < width; ++i) d_weight[i] += d[i] * xhat[i];
        for (std::int64_t i = 0; i < width; ++i) d[i] *= weight[i];
        const T mean = sum<T>(width, [&](std::int64_t i) { return d[i] * xhat[i]; }) / static_cast<T>(width);
        for (std::int64_t i = 0; i < width; ++i) d[i] = factor * (d[i] - xhat[i] * mean);
      }
      write_row<Element>(rows, args.d_x, row, d.data());
    });
  });
  if (partial == nullptr) return;
  std::vector<T> total(static_cast<std::size_t>(width));
  add_slots(partial, 0, slots.count(), width, total.data());
  write_any(args.d_weight.data, args.d_weight.dtype, 0, width, total.data());
}

}  // namespace

void forward(const RotaryFeatures& p, const RotaryFeatures::Forward& args, const Parallel& parallel) {
  with_element_type(p.dtype, [&](auto tag) { forward<typename decltype(tag)::type>(p, args, parallel); });
}

void backward(const RotaryFeatures& p, const RotaryFeatures::Backward& args, const Parallel& parallel) {
  with_element_type(p.dtype, [&](auto tag) { backward<typename decltype(tag)::type>(p, args, parallel); });
}

}  // namespace mhla::cpu
