// Tables of cosines and sines, made where they will be used; torch.ops.mhla.rotary_table.
#include <cmath>

#include "core/sizes.hpp"
#include "mhla/fused_torch.hpp"
#include "torch/fused_tensors.hpp"

namespace mhla::dispatch::rotary_table {
namespace {

// For each axis in turn [sizes, pairs]: pair j of P turns by (offset + coordinate) theta^(-j / P). Angles are in
// double.
// NOLINTBEGIN(performance-unnecessary-value-param): the dispatcher hands SymInt over by value
std::tuple<at::Tensor, at::Tensor> make(c10::SymIntArrayRef sizes, at::IntArrayRef pairs, double theta,
                                        c10::SymInt offset, std::optional<at::ScalarType> dtype,
                                        std::optional<at::Device> device) {
  // NOLINTEND(performance-unnecessary-value-param)
  if (sizes.size() != pairs.size() || sizes.empty() || sizes.size() > 3) {
    refuse("sizes has ", sizes.size(), " entries and pairs ", pairs.size(),
           "; it must be one for each axis, from 1 to 3 of them");
  }
  if (!(theta > 0.0) || !std::isfinite(theta)) refuse("theta is ", theta, "; it must be finite and positive");
  const auto too_large = [](const c10::SymInt& size) { return !size.is_symbolic() && size > kMostTokens; };
  if (too_large(offset) || (!offset.is_symbolic() && offset < -kMostTokens)) {
    refuse("offset is ", offset, "; it must lie within 2^48");
  }
  const auto in_double = at::TensorOptions(at::kDouble).device(device.value_or(at::kCPU));
  std::vector<at::Tensor> angles;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    if (sizes[axis] < 0) refuse("sizes has an entry ", sizes[axis], "; it must be at least 0");
    if (too_large(sizes[axis])) refuse("sizes has an entry ", sizes[axis], "; it must be at most 2^48");
    if (pairs[axis] < 0) refuse("pairs has an entry ", pairs[axis], "; it must be at least 0");
    const at::Tensor positions = at::arange(at::Scalar(offset), at::Scalar(offset + sizes[axis]), in_double);
    const at::Tensor exponents = at::arange(pairs[axis], in_double) / -static_cast<double>(pairs[axis]);
    angles.push_back(at::outer(positions, at::pow(theta, exponents)).flatten());
  }
  const at::Tensor all = at::cat(angles);
  const at::ScalarType type = dtype.value_or(at::kFloat);
  return {all.cos().to(type), all.sin().to(type)};
}

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.def(
      "rotary_table(SymInt[] sizes, int[] pairs, float theta=10000.0, SymInt offset=0, *, ScalarType? dtype=None, "
      "Device? device=None) -> (Tensor cos, Tensor sin)",
      &make, {at::Tag::pt2_compliant_tag});
}

}  // namespace
}  // namespace mhla::dispatch::rotary_table

namespace mhla::fused {
namespace {

RotaryTables make_tables(std::vector<std::int64_t> sizes, std::vector<std::int64_t> pairs, RotaryLayout layout,
                         const at::TensorOptions& options, double theta, std::int64_t offset) {
  const at::ScalarType type = options.has_dtype() ? c10::typeMetaToScalarType(options.dtype()) : at::kFloat;
  const std::vector<c10::SymInt> grid(sizes.begin(), sizes.end());
  auto [cos, sin] = dispatch::rotary_table::make(grid, pairs, theta, offset, type, options.device());
  return {cos, sin, std::move(sizes), std::move(pairs), layout};
}

}  // namespace

RotaryTables RotaryTables::line(std::int64_t tokens, std::int64_t dim, RotaryLayout layout, at::TensorOptions options,
                                double theta, std::int64_t offset) {
  return make_tables({tokens}, {dim / 2}, layout, options, theta, offset);
}

RotaryTables RotaryTables::grid(std::vector<std::int64_t> sizes, std::int64_t dim, RotaryLayout layout,
                                at::TensorOptions options, double theta) {
  const auto axes = static_cast<std::int64_t>(sizes.size());
  const std::int64_t all = dim / 2, each = axes > 0 ? all / axes : 0;
  std::vector<std::int64_t> pairs(sizes.size(), each);
  if (axes > 0) pairs[0] += all - each * axes;
  return make_tables(std::move(sizes), std::move(pairs), layout, options, theta, 0);
}

}  // namespace mhla::fused
