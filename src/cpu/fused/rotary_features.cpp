// y = rotate(f), with f = phi(u) + feature_eps, u = xhat weight and xhat = x / rms(x); without a norm u = x.
//
// Backward, with d_f = rotate^T(d_y) + d_plain and d_u = d_f phi'(u):
//   d_weight = sum d_u xhat    d_x = (d_xhat - xhat mean(d_xhat xhat)) / rms, d_xhat = d_u weight
#include <cmath>
#include <type_traits>

#include "cpu/feature_map.hpp"
#include "cpu/fused/fused.hpp"
#include "cpu/fused/rows.hpp"

namespace mhla::cpu {
namespace {

using fused::NormScope;
using fused::RotaryFeatures;
using fused::RotaryLayout;

// Calls visit with phi's map as a constant, so that loops over elements have no switch inside.
template <typename Visit>
void with_constant(FeatureMap map, Visit&& visit) {
  switch (map) {
    case FeatureMap::identity:
      return visit(std::integral_constant<FeatureMap, FeatureMap::identity>{});
    case FeatureMap::relu:
      return visit(std::integral_constant<FeatureMap, FeatureMap::relu>{});
    case FeatureMap::elu_plus_one:
      return visit(std::integral_constant<FeatureMap, FeatureMap::elu_plus_one>{});
    case FeatureMap::exp:
      return visit(std::integral_constant<FeatureMap, FeatureMap::exp>{});
    case FeatureMap::squared_relu:
      return visit(std::integral_constant<FeatureMap, FeatureMap::squared_relu>{});
  }
}

// Turns `count` pairs (a[kStride j], b[kStride j]), forth (`direction` 1) or back (-1).
template <int kStride, typename T>
void turn(std::int64_t count, T* a, T* b, const T* cos, const T* sin, T direction) {
  for (std::int64_t j = 0; j < count; ++j) {
    const T s = sin[j] * direction, x = a[kStride * j], y = b[kStride * j];
    a[kStride * j] = x * cos[j] - y * s;
    b[kStride * j] = x * s + y * cos[j];
  }
}

// Turns the pairs of every head of a row in place.
template <typename T>
void rotate(const RotaryFeatures& p, const RotaryFeatures::Inputs& in, const RowIndex& row, T direction,
            std::vector<T>& values) {
  const fused::Rotary& rotary = p.rotary;
  const std::int64_t pairs = rotary.all_pairs();
  std::array<std::int64_t, 3> coordinates{};
  std::int64_t token = row.token;
  for (int axis = rotary.axes - 1; axis >= 0; --axis) {
    const auto a = static_cast<std::size_t>(axis);
    coordinates[a] = token % rotary.sizes[a];
    token /= rotary.sizes[a];
  }
  std::int64_t first = 0, table = row.batch * in.table_stride;
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rotary.axes); ++axis) {
    const std::int64_t count = rotary.pairs[axis], entry = table + coordinates[axis] * count;
    const T* const cos = static_cast<const T*>(in.cos) + entry;
    const T* const sin = static_cast<const T*>(in.sin) + entry;
    for (std::size_t head = 0; head < values.size(); head += static_cast<std::size_t>(p.dim)) {
      T* const x = values.data() + head;
      if (rotary.layout == RotaryLayout::half)
        turn<1>(count, x + first, x + pairs + first, cos, sin, direction);
      else
        turn<2>(count, x + 2 * first, x + 2 * first + 1, cos, sin, direction);
    }
    first += count;
    table += rotary.sizes[axis] * count;
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
      with_constant(p.feature_map, [&](auto map) {
        for (T& value : f) value = phi(map(), value) + static_cast<T>(p.feature_eps);
      });
      if (args.plain.data != nullptr) write_row<Element>(rows, args.plain, row, f.data());
      rotate(p, args.in, row, T(1), f);
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
        rotate(p, args.in, row, T(-1), d);
      } else {
        std::fill(d.begin(), d.end(), T(0));
      }
      if (args.d_plain.data != nullptr) {
        read_row<Element>(rows, args.d_plain, row, d_plain.data());
        for (std::int64_t i = 0; i < width; ++i) d[i] += d_plain[i];
      }
      const bool normed = p.norm != NormScope::none;
      const T factor = normed ? inverse_rms(xhat, p.norm_eps) : T(1);
      with_constant(p.feature_map, [&](auto map) {
        for (std::int64_t i = 0; i < width; ++i) {
          xhat[i] *= factor;
          d[i] *= phi_derivative(map(), xhat[i] * weight[i]);
        }
      });
      if (normed) {
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
