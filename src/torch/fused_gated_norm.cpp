// torch.ops.mhla.gated_norm and its derivative.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "core/fused_validate.hpp"
#include "mhla/fused_torch.hpp"
#include "torch/differentiated.hpp"
#include "torch/execution.hpp"
#include "torch/fused_tensors.hpp"
#include "torch/tensors.hpp"

namespace mhla::dispatch::gated_norm {
namespace {

using fused::GatedNorm;
using fused::NormScope;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using BackwardResult = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

GatedNorm check(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& gate, std::string_view norm,
                double eps) {
  check_token_rows(x, "x", 4, "[batch, tokens, heads, width]");
  GatedNorm p{.dtype = dtype_of(x, "x"), .norm = fused::parse_norm_scope(norm), .eps = eps};
  if (p.norm == NormScope::none) refuse("norm is none; it must be head or channels");
  fused::require_eps("eps", eps);
  const c10::SymInt width = p.norm == NormScope::channels ? x.sym_size(2) * x.sym_size(3) : x.sym_size(3);
  check_vector(weight, "weight", width, x);
  if (gate) check_like(*gate, "gate", x);
  return p;
}

void set_sizes(GatedNorm& p, const at::Tensor& x) {
  p.device = mhla_device(x);
  p.batch = x.size(0), p.tokens = x.size(1), p.heads = x.size(2), p.dim = x.size(3);
}

at::Tensor forward_meta(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& gate,
                        std::string_view norm, double eps) {
  check(x, weight, gate, norm, eps);
  return empty_like_contiguous(x);
}

at::Tensor forward_device(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& gate,
                          std::string_view norm, double eps) {
  GatedNorm p = check(x, weight, gate, norm, eps);
  set_sizes(p, x);
  TorchExecution execution(x);
  const at::Tensor weight_read = readable(weight);
  at::Tensor y = empty_like_contiguous(x);
  fused::forward(
      p,
      {.in = {.x = token_view(x), .weight = vector_view(weight_read), .gate = token_view(gate.value_or(at::Tensor()))},
       .y = mutable_token_view(y),
       .run = execution.run(0)});
  return y;
}

BackwardResult allocate_backward(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& gate) {
  return {empty_like_contiguous(x), weight ? empty_like_contiguous(*weight) : nothing(x),
          gate ? empty_like_contiguous(*gate) : nothing(x)};
}

BackwardResult backward_meta(const at::Tensor& d_y, const at::Tensor& x, const OptionalTensor& weight,
                             const OptionalTensor& gate, std::string_view norm, double eps) {
  check(x, weight, gate, norm, eps);
  check_gradient(d_y, "d_y", x);
  return allocate_backward(x, weight, gate);
}

BackwardResult backward_device(const at::Tensor& d_y, const at::Tensor& x, const OptionalTensor& weight,
                               const OptionalTensor& gate, std::string_view norm, double eps) {
  GatedNorm p = check(x, weight, gate, norm, eps);
  check_gradient(d_y, "d_y", x);
  set_sizes(p, x);
  TorchExecution execution(x);
  BackwardResult result = allocate_backward(x, weight, gate);
  const auto& [d_x, d_weight, d_gate] = result;
  const at::Tensor weight_read = readable(weight), d_y_read = readable(d_y);
  fused::backward(
      p,
      {.in = {.x = token_view(x), .weight = vector_view(weight_read), .gate = token_view(gate.value_or(at::Tensor()))},
       .d_y = token_view(d_y_read),
       .d_x = mutable_token_view(d_x),
       .d_weight = mutable_vector_view(d_weight),
       .d_gate = mutable_token_view(d_gate),
       .run = execution.run(weight ? backward_workspace(p) : 0)});
  return result;
}

at::Tensor call(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& gate, std::string_view norm,
                double eps) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mhla::gated_norm", "").typed<decltype(forward_meta)>();
  return op.call(x, weight, gate, norm, eps);
}

BackwardResult call_backward(const at::Tensor& d_y, const at::Tensor& x, const OptionalTensor& weight,
                             const OptionalTensor& gate, std::string_view norm, double eps) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("mhla::gated_norm_backward", "").typed<decltype(backward_meta)>();
  return op.call(d_y, x, weight, gate, norm, eps);
}

struct GatedNormFunction : torch::autograd::Function<GatedNormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const OptionalTensor& weight,
                            const OptionalTensor& gate, std::string_view norm, double eps) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({x, weight.value_or(at::Tensor()), gate.value_or(at::Tensor())});
    context->saved_data["norm"] = std::string(norm);
    context->saved_data["eps"] = eps;
    return call(x, weight, gate, norm, eps);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    const variable_list saved = context->get_saved_variables();
    const auto given = [](const at::Tensor& tensor) {
      return tensor.defined() ? OptionalTensor(tensor) : std::nullopt;
    };
    const auto [d_x, d_weight, d_gate] =
        call_backward(d_outputs[0], saved[0], given(saved[1]), given(saved[2]),
                      context->saved_data["norm"].toStringRef(), context->saved_data["eps"].toDouble());
    return {d_x, saved[1].defined() ? d_weight : at::Tensor(), saved[2].defined() ? d_gate : at::Tensor(), {}, {}};
  }
};

at::Tensor forward_autograd(const at::Tensor& x, const OptionalTensor& weight, const OptionalTensor& gate,
                            std::string_view norm, double eps) {
  if (differentiated(x) || differentiated(weight) || differentiated(gate))
    return GatedNormFunction::apply(x, weight, gate, norm, eps);
  const at::AutoDispatchBelowADInplaceOrView below;
  return call(x, weight, gate, norm, eps);
}

TORCH_LIBRARY_FRAGMENT(mhla, library) {
  library.def(
      "gated_norm(Tensor x, Tensor? weight=None, Tensor? gate=None, str norm=\"head\", float eps=1e-06) -> Tensor",
      {at::Tag::pt2_compliant_tag});
  library.def(
      "gated_norm_backward(Tensor d_y, Tensor x, Tensor? weight=None, Tensor? gate=None, str norm=\"head\", float "
      "eps=1e-06) -> (Tensor d_x, Tensor d_weight, Tensor d_gate)",
      {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(mhla, CPU, library) {
  library.impl("gated_norm", &forward_device);
  library.impl("gated_norm_backward", &backward_device);
}

TORCH_LIBRARY_IMPL(mhla, CUDA, library) {
  library.impl("gated_norm", &forward_device);
  library.impl("gated_norm_backward", &backward_device);
}

TORCH_LIBRARY_IMPL(mhla, Meta, library) {
  library.impl("gated_norm", &forward_meta);
  library.impl("gated_norm_backward", &backward_meta);
}

TORCH_LIBRARY_IMPL(mhla, Autograd, library) {
  library.impl("gated_norm", &forward_autograd);
  library.impl("gated_norm_backward", torch::autograd::autogradNotImplementedFallback());
}

}  // namespace
}  // namespace mhla::dispatch::gated_norm

namespace mhla::fused {

at::Tensor gated_norm(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                      const std::optional<at::Tensor>& gate, NormScope norm, double eps) {
  return dispatch::gated_norm::call(x, weight, gate, name(norm), eps);
}

}  // namespace mhla::fused
