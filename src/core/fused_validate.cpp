// What the fused operators accept.
#include "core/fused_validate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "core/fused_rows.hpp"
#include "core/require.hpp"
#include "core/sizes.hpp"
#include "core/strides.hpp"

namespace mhla::fused {
namespace {

constexpr std::int64_t kMaxWidth = std::int64_t{1} << 24;  // elements of a token

void require_rows(const Rows& rows, const char* dim_name) {
  require_size("batch", rows.batch, 0, kMostBatch);
  require_size("tokens", rows.tokens, 0, kMostTokens);
  require_size("heads", rows.heads, 0, kMaxWidth);
  require_size(dim_name, rows.dim, 1, kMaxWidth);
  require(rows.heads <= kMaxWidth / rows.dim, "heads times ", dim_name,
          " is too large; a token has at most 2^24 elements");
  checked_elements("batch x tokens x heads x width", {rows.batch, std::max<std::int64_t>(1, rows.tokens),
                                                      std::max<std::int64_t>(1, rows.heads), rows.dim});
}

TokenSizes sizes_of(const Rows& rows) { return {rows.batch, rows.tokens, rows.heads, rows.dim}; }

void require_input(const char* name, const ConstTensor& x, const Rows& rows) {
  require(x.data != nullptr || rows.empty(), name, " is null");
  if (x.data != nullptr) require_strides(name, x, sizes_of(rows));
}

// Not given, or as an input must be.
void require_if_given(const char* name, const ConstTensor& x, const Rows& rows) {
  if (x.data != nullptr) require_input(name, x, rows);
}

void require_output(const char* name, const Tensor& y, const Rows& rows) {
  require(y.data != nullptr || rows.empty(), name, " is null");
  if (y.data != nullptr) require_apart(name, y, sizes_of(rows));
}

// Rows of a modulation, as a tensor with one head.
template <typename Pointer>
BasicTensor<Pointer> tensor_of(const Modulate::BasicRows<Pointer>& rows) {
  return {rows.data, rows.batch_stride, rows.token_stride, 0};
}
Rows modulation_rows(const Modulate& p) {
  return {p.batch, p.modulation == Modulation::per_token ? p.tokens : 1, 1, p.channels, true};
}

// The axes there are hold the tokens; the sizes of others are 0.
void require_grid(const Rotary& rotary, std::int64_t tokens) {
  std::int64_t held = 1;
  bool overflow = false;
  for (int axis = 0; axis < rotary.axes; ++axis)
    overflow |= __builtin_mul_overflow(held, rotary.sizes[static_cast<std::size_t>(axis)], &held);
  if (!overflow && held == tokens) return;
  std::string sizes;
  for (int axis = 0; axis < rotary.axes; ++axis)
    sizes += (axis == 0 ? "" : " x ") + std::to_string(rotary.sizes[static_cast<std::size_t>(axis)]);
  throw Error("rotary.sizes are " + sizes + "; they must hold the tokens of x, " + std::to_string(tokens));
}

void require_table(const Rotary& rotary) {
  for (std::size_t axis = 0; axis < 3; ++axis)
    checked_elements("an entry of rotary.sizes x its rotary.pairs", {rotary.sizes[axis], rotary.pairs[axis]});
}

// Arithmetic in float has no place for a double beside it.
template <typename Given>
void require_dtype(const char* name, const Given& given, DType dtype) {
  require(given.data == nullptr || given.dtype != DType::f64 || dtype == DType::f64, name, " is f64; beside x of ",
          mhla::name(dtype), " it must be f32, bf16 or f16");
}

void require_workspace(const Execution& run, Device device, std::size_t needed) {
  if (needed == 0) return;
  require(run.workspace != nullptr, "workspace is null; it must hold ", needed, " bytes");
  require(run.workspace_bytes >= needed, "workspace_bytes is ", run.workspace_bytes, "; it must be at least ", needed);
  const std::uintptr_t alignment = device == Device::cuda ? 256 : 64;
  require(reinterpret_cast<std::uintptr_t>(run.workspace) % alignment == 0, "workspace is not aligned to ", alignment,
          " bytes");
}

void validate(const RotaryFeatures& p, const RotaryFeatures::Inputs& in) {
  const Rows rows = rows_of(p);
  fused::validate(p);
  require_eps("norm_eps", p.norm_eps);
  require_finite("feature_eps", p.feature_eps);
  require_input("x", in.x, rows);
  require(in.weight.data == nullptr || p.norm != NormScope::none,
          "weight is given; it must be null with norm none, which has no weight");
  require_dtype("weight", in.weight, p.dtype);
  const Rotary& rotary = p.rotary;
  validate(rotary);
  if (rotary.axes == 0) return;
  require_grid(rotary, p.tokens);
  require(2 * rotary.all_pairs() <= p.dim, "rotary.pairs are ", rotary.all_pairs(),
          " in all; they must be at most half of dim, ", p.dim / 2);
  require_table(rotary);
  const bool any = !rows.empty() && rotary.all_pairs() > 0;
  require(!any || in.cos != nullptr, "cos is null; a rotation needs its tables");
  require(!any || in.sin != nullptr, "sin is null; a rotation needs its tables");
  require(in.table_stride == 0 || (rotary.axes == 1 && in.table_stride >= rotary.table_elements()), "table_stride is ",
          in.table_stride,
          "; it must be 0 (one table for all batch rows) or, with one axis, at least the entries of a table");
}

void validate(const GatedNorm& p, const GatedNorm::Inputs& in) {
  fused::validate(p);
  require_eps("eps", p.eps);
  require(p.norm != NormScope::none, "norm is none; it must be head or channels");
  require_input("x", in.x, rows_of(p));
  require_if_given("gate", in.gate, rows_of(p));
  require_dtype("weight", in.weight, p.dtype);
}

void validate(const Modulate& p, const Modulate::Inputs& in) {
  fused::validate(p);
  require_eps("eps", p.eps);
  require_input("x", in.x, rows_of(p));
  require_if_given("scale", tensor_of(in.scale), modulation_rows(p));
  require_if_given("shift", tensor_of(in.shift), modulation_rows(p));
  require_dtype("weight", in.weight, p.dtype);
  require_dtype("bias", in.bias, p.dtype);
  require_dtype("scale", in.scale, p.dtype);
  require_dtype("shift", in.shift, p.dtype);
}

template <typename Gradient, typename Input>
void require_only_with(const Gradient& gradient, const Input& input, const char* name, const char* input_name) {
  require(gradient.data == nullptr || input.data != nullptr, name, " is given; it must be null without ", input_name);
}

}  // namespace

void validate(const RotaryFeatures& p) { require_rows(rows_of(p), "dim"); }
void validate(const GatedNorm& p) { require_rows(rows_of(p), "dim"); }
void validate(const Modulate& p) { require_rows(rows_of(p), "channels"); }

void validate(const Rotary& rotary) {
  require(rotary.axes >= 0 && rotary.axes <= 3, "rotary.axes is ", rotary.axes, "; it must be from 0 to 3");
  for (std::size_t axis = 0; axis < 3; ++axis) {
    require_size("an entry of rotary.sizes", rotary.sizes[axis], 0, std::numeric_limits<std::int64_t>::max());
    require_size("an entry of rotary.pairs", rotary.pairs[axis], 0, kMaxWidth);
    require(axis < static_cast<std::size_t>(rotary.axes) || (rotary.sizes[axis] == 0 && rotary.pairs[axis] == 0),
            "rotary.sizes and rotary.pairs must be 0 past the axes there are, ", rotary.axes);
  }
}

void validate_table(const Rotary& rotary, double theta, std::int64_t offset, DType dtype, const void* cos,
                    const void* sin) {
  validate(rotary);
  require_table(rotary);
  require_size("offset", offset, -kMostTokens, kMostTokens);
  require(std::isfinite(theta) && theta > 0.0, "theta is ", theta, "; it must be finite and positive");
  require(dtype == DType::f32 || dtype == DType::f64, "dtype is ", name(dtype), "; tables must be f32 or f64");
  require(cos != nullptr, "cos is null");
  require(sin != nullptr, "sin is null");
}

void validate(const RotaryFeatures& p, const RotaryFeatures::Forward& args) {
  validate(p, args.in);
  require_output("y", args.y, rows_of(p));
  if (args.plain.data != nullptr) require_output("plain", args.plain, rows_of(p));
}

void validate(const RotaryFeatures& p, const RotaryFeatures::Backward& args) {
  validate(p, args.in);
  require_if_given("d_y", args.d_y, rows_of(p));
  require_if_given("d_plain", args.d_plain, rows_of(p));
  require_output("d_x", args.d_x, rows_of(p));
  require_only_with(args.d_weight, args.in.weight, "d_weight", "weight");
  require_dtype("d_weight", args.d_weight, p.dtype);
  if (args.d_weight.data != nullptr) require_workspace(args.run, p.device, backward_workspace(p));
}

void validate(const GatedNorm& p, const GatedNorm::Forward& args) {
  validate(p, args.in);
  require_output("y", args.y, rows_of(p));
}

void validate(const GatedNorm& p, const GatedNorm::Backward& args) {
  validate(p, args.in);
  require_input("d_y", args.d_y, rows_of(p));
  require_output("d_x", args.d_x, rows_of(p));
  require_only_with(args.d_weight, args.in.weight, "d_weight", "weight");
  require_only_with(args.d_gate, args.in.gate, "d_gate", "gate");
  if (args.in.gate.data != nullptr) require_output("d_gate", args.d_gate, rows_of(p));
  require_dtype("d_weight", args.d_weight, p.dtype);
  if (args.d_weight.data != nullptr) require_workspace(args.run, p.device, backward_workspace(p));
}

void validate(const Modulate& p, const Modulate::Forward& args) {
  validate(p, args.in);
  require_output("y", args.y, rows_of(p));
}

void validate(const Modulate& p, const Modulate::Backward& args) {
  validate(p, args.in);
  require_input("d_y", args.d_y, rows_of(p));
  require_output("d_x", args.d_x, rows_of(p));
  for (const auto& [name, given] : {std::pair{"d_scale", &args.d_scale}, std::pair{"d_shift", &args.d_shift}})
    if (given->data != nullptr) require_output(name, tensor_of(*given), modulation_rows(p));
  require_only_with(args.d_weight, args.in.weight, "d_weight", "weight");
  require_only_with(args.d_bias, args.in.bias, "d_bias", "bias");
  require_only_with(args.d_scale, args.in.scale, "d_scale", "scale");
  require_only_with(args.d_shift, args.in.shift, "d_shift", "shift");
  require_dtype("d_weight", args.d_weight, p.dtype);
  require_dtype("d_bias", args.d_bias, p.dtype);
  require_dtype("d_scale", args.d_scale, p.dtype);
  require_dtype("d_shift", args.d_shift, p.dtype);
  const bool sums = args.d_weight.data != nullptr || args.d_bias.data != nullptr || args.d_scale.data != nullptr ||
                    args.d_shift.data != nullptr;
  if (sums) require_workspace(args.run, p.device, backward_workspace(p));
}

}  // namespace mhla::fused
