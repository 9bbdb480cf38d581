// torch.ops.mhla.modulate and its derivative.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "core/fused_validate.hpp"
#include "mhla/fused_torch.hpp"
#include "torch/differentiated.hpp"
#include "torch/execution.hpp"
#include "torch/fused_tensors.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch::modulate {
namespace {

using fused::Modulate;
using fused::Modulation;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using BackwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// The tensors beside x.
struct Parameters {
  OptionalTensor scale, shift, weight, bias;
};

void check_rows(const OptionalTensor& rows, std::string_view argument, const at::Tensor& x) {
  if (!rows) return;
  check_parameter(*rows, argument, x);
  const bool per_batch = rows->dim() == 2 && rows->sym_size(0) == x.sym_size(0) && rows->sym_size(1) == x.sym_size(2);
  const bool per_token = rows->dim() == 3 && rows->sym_sizes() == x.sym_sizes();
  if (!per_batch && !per_token) {
    refuse(argument, " has shape ", rows->sym_sizes(), "; it must be [", x.sym_size(0), ", ", x.sym_size(2), "] or [",
           x.sym_size(0), ", ", x.sym_size(1), ", ", x.sym_size(2), "]");
  }
}

Modulate check(const at::Tensor& x, const Parameters& in, double eps) {
  check_token_rows(x, "x", 3, "[batch, tokens, channels]");
  fused::require_eps("eps", eps);
  check_vector(in.weight, "weight", x.sym_size(2), x);
  check_vector(in.bias, "bias", x.sym_size(2), x);
  check_rows(in.scale, "scale", x);
  check_rows(in.shift, "shift", x);
  if (in.scale && in.shift && in.scale->dim() != in.shift->dim()) {
    refuse("shift has ", in.shift->dim(), " axes; it must be those of scale, ", in.scale->dim());
  }
  const OptionalTensor& rows = in.scale ? in.scale : in.shift;
  return {.dtype = dtype_of(x, "x"),
          .eps = eps,
          .modulation = rows && rows->dim() == 3 ? Modulation::per_token : Modulation::per_batch};
}

void set_sizes(Modulate& p, const at::Tensor& x) {
  p.device = mhla_device(x);
  p.batch = x.size(0), p.tokens = x.size(1), p.channels = x.size(2);
}

template <typename Pointer>
Modulate::BasicRows<Pointer> rows_of(const at::Tensor& rows, Pointer data) {
  return {data, dtype_of(rows, "scale"), rows.stride(0), rows.dim() == 3 ? rows.stride(1) : 0};
}

Modulate::BasicRows<const void*> rows_view(const at::Tensor& rows) {
  if (!rows.defined() || rows.numel() == 0) return {};
  return rows_of<const void*>(rows, data_of(rows));
}

Modulate::BasicRows<void*> mutable_rows_view(const at::Tensor& rows) {
  if (rows.numel() == 0) return {};
  return rows_of<void*>(rows, mutable_data_of(rows));
}

// The tensors of a call in the form libmhla reads.
class Operands {
 public:
  Operands(const at::Tensor& x, const Parameters& in)
      : x_(x), scale_(readable(in.scale)), shift_(readable(in.shift)), weight_(readable(in.weight)),
        bias_(readable(in.bias)) {}

  Modulate::Inputs inputs() const {
    return {.x = token_view(x_),
            .weight = vector_view(weight_),
            .bias = vector_view(bias_),
            .scale = rows_view(scale_),
            .shift = rows_view(shift_)};
  }

 private:
  at::Tensor x_, scale_, shift_, weight_, bias_;
};

at::Tensor forward_meta(const at::Tensor& x, const OptionalTensor& scale, const OptionalTensor& shift,
                        const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  check(x, {scale, shift, weight, bias}, eps);
  return empty_like_contiguous(x);
}

at::Tensor forward_device(const at::Tensor& x, const OptionalTensor& scale, const OptionalTensor& shift,
                          const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  const Parameters in{scale, shift, weight, bias};
  Modulate p = check(x, in, eps);
  set_sizes(p, x);
  TorchExecution execution(x);
  const Operands operands(x, in);
  at::Tensor y = empty_like_contiguous(x);
  fused::forward(p, {.in = operands.inputs(), .y = mutable_token_view(y), .run = execution.run(0)});
  return y;
}

BackwardResult allocate_backward(const at::Tensor& x, const Parameters& in) {
  const auto like = [&](const OptionalTensor& tensor) { return tensor ? empty_like_contiguous(*tensor) : nothing(x); };
  return {empty_like_contiguous(x), like(in.scale), like(in.shift), like(in.weight), like(in.bias)};
}

BackwardResult backward_meta(const at::Tensor& d_y, const at::Tensor& x, const OptionalTensor& scale,
                             const OptionalTensor& shift, const OptionalTensor& weight, const OptionalTensor& bias,
                             double eps) {
  const Parameters in{scale, shift, weight, bias};
  check(x, in, eps);
  check_gradient(d_y, "d_y", x);
  return allocate_backward(x, in);
}

BackwardResult backward_device(const at::Tensor& d_y, const at::Tensor& x, const OptionalTensor& scale,
                               const OptionalTensor& shift, const OptionalTensor& weight, const OptionalTensor& bias,
                               double eps) {
  const Parameters in{scale, shift, weight, bias};
  Modulate p = check(x, in, eps);
  check_gradient(d_y, "d_y", x);
  set_sizes(p, x);
  TorchExecution execution(x);
  const Operands operands(x, in);
  const at::Tensor d_y_read = readable(d_y);
  BackwardResult result = allocate_backward(x, in);
  const auto& [d_x, d_scale, d_shift, d_weight, d_bias] = result;
  const bool sums = scale || shift || weight || bias;
  fused::backward(p, {.in = operands.inputs(),
                      .d_y = token_view(d_y_read),
                      .d_x = mutable_token_view(d_x),
                      .d_weight = mutable_vector_view(d_weight),
                      .d_bias = mutable_vector_view(d_bias),
                      .d_scale = mutable_rows_view(d_scale),
                      .d_shift = mutable_rows_view(d_shift),
                      .run = execution.run(sums ? backward_workspace(p) : 0)});
  return result;
}

at::Tensor call(const at::Tensor& x, const Parameters& in, double eps) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mhla::modulate", "").typed<decltype(forward_meta)>();
  return op.call(x, in.scale, in.shift, in.weight, in.bias, eps);
}

BackwardResult call_backward(const at::Tensor& d_y, const at::Tensor& x, const Parameters& in, double eps) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mhla::modulate_backward", "").typed<decltype(backward_meta)>();
  return op.call(d_y, x, in.scale, in.shift, in.weight, in.bias, eps);
}

struct ModulateFunction : torch::autograd::Function<ModulateFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const OptionalTensor& scale,
                            const OptionalTensor& shift, const OptionalTensor& weight, const OptionalTensor& bias,
                            double eps) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, scale.value_or(at::Tensor()), shift.value_or(at::Tensor()),
                                weight.value_or(at::Tensor()), bias.value_or(at::Tensor())});
    context->saved_data["eps"] = eps;
    return call(x, {scale, shift, weight, bias}, eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    const variable_list saved = context->get_saved_variables();
    const auto given = [&](std::size_t i) { return saved[i].defined() ? OptionalTensor(saved[i]) : std::nullopt; };
    const auto [d_x, d_scale, d_shift, d_weight, d_bias] = call_backward(
        d_outputs[0], saved[0], {given(1), given(2), given(3), given(4)}, context->saved_data["eps"].toDouble());
    const auto wanted = [&](const at::Tensor& d, std::size_t i) { return saved[i].defined() ? d : at::Tensor(); };
    return {d_x, wanted(d_scale, 1), wanted(d_shift, 2), wanted(d_weight, 3), wanted(d_bias, 4), {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const OptionalTensor& scale, const OptionalTensor& shift,
                            const OptionalTensor& weight, const OptionalTensor& bias, double eps) {
  if (differentiated(x) || differentiated(scale) || differentiated(shift) || differentiated(weight) ||
      differentiated(bias))
    return ModulateFunction::apply(x, scale, shift, weight, bias, eps);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call(x, {scale, shift, weight, bias}, eps);
}

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.def(
      "modulate(Tensor x, Tensor? scale=None, Tensor? shift=None, Tensor? weight=None, Tensor? bias=None, float "
      "eps=1e-06) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "modulate_backward(Tensor d_y, Tensor x, Tensor? scale=None, Tensor? shift=None, Tensor? weight=None, Tensor? "
      "bias=None, float eps=1e-06) -> (Tensor d_x, Tensor d_scale, Tensor d_shift, Tensor d_weight, Tensor d_bias)",
      {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(mhla, CPU, library) {
  library.impl("modulate", &forward_device);
  library.impl("modulate_backward", &backward_device);
}

TORCH_LIBRARY_IMPL(mhla, CUDA, library) {
  library.impl("modulate", &forward_device);
  library.impl("modulate_backward", &backward_device);
}

TORCH_LIBRARY_IMPL(mhla, Meta, library) {
  library.impl("modulate", &forward_meta);
  library.impl("modulate_backward", &backward_meta);
}

TORCH_LIBRARY_IMPL(mhla, Autograd, library) {
  library.impl("modulate", &forward_autograd);
  library.impl("modulate_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace mhla::dispatch::modulate

namespace mhla::fused {

at::Tensor modulate(const at::Tensor& x, const std::optional<at::Tensor>& scale, const std::optional<at::Tensor>& shift,
                    const std::optional<at::Tensor>& weight, const std::optional<at::Tensor>& bias, double eps) {
  return dispatch::modulate::call(x, {scale, shift, weight, bias}, eps);
}

}  // namespace mhla::fused
