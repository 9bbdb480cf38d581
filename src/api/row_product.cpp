// Products of few rows: checks, and parts of the matrix for the threads.
#include "mhla/row_product.hpp"

#include <algorithm>
#include <utility>

#include "core/require.hpp"
#include "cpu/kernels.hpp"

namespace mhla {
namespace {

constexpr std::int64_t kPart = 32;      // outputs of a task, at least
constexpr std::int64_t kFew = 1 << 18;  // multiplications before another thread is awake
constexpr std::int64_t kMostParts = 64;

template <typename T>
void multiply(const RowProduct& p, const RowProduct::Args& args) {
  const std::int64_t part = std::max(kPart, (p.outputs + kMostParts - 1) / kMostParts);
  const std::int64_t parts = (p.outputs + part - 1) / part;
  const bool few = p.rows * p.inputs < kFew / std::max<std::int64_t>(1, p.outputs);
  const Parallel& parallel = few ? serial() : args.run.parallel != nullptr ? *args.run.parallel : default_parallel();
  parallel.for_each(parts, [&](std::int64_t index) {
    const std::int64_t first = index * part;
    cpu::kernels<T>().row_product({.rows = p.rows,
                                   .outputs = std::min(part, p.outputs - first),
                                   .k = p.inputs,
                                   .x = static_cast<const T*>(args.x),
                                   .weight = static_cast<const T*>(args.weight) + first * p.inputs,
                                   .y = static_cast<T*>(args.y) + first,
                                   .ldy = p.outputs});
  });
}

}  // namespace

void row_product(const RowProduct& p, const RowProduct::Args& args) {
  for (const auto& [size, value] : {std::pair{"rows", p.rows}, {"inputs", p.inputs}, {"outputs", p.outputs}})
    require(value >= 0, size, " is ", value, "; it must be at least 0");
  require(p.dtype == DType::f32 || p.dtype == DType::f64, "dtype is ", name(p.dtype), "; it must be f32 or f64");
  if (p.rows == 0 || p.outputs == 0) return;
  require(args.y != nullptr, "y is null");
  require(p.inputs == 0 || (args.x != nullptr && args.weight != nullptr), "x or weight is null");
  if (p.dtype == DType::f64)
    multiply<double>(p, args);
  else
    multiply<float>(p, args);
}

}  // namespace mhla
