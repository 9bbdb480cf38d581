// Registers torch.ops.mhla.attention, attention_keeping and attention_backward and calls them.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "torch/arguments.hpp"

namespace mhla::dispatch {

ForwardResult call_forward(const AttentionCall& call) {
  static const auto op = operator_handle<&forward_device>("mhla::attention");
  return call_operator(op, call);
}

KeepingResult call_keeping(const AttentionCall& call, const Keeping& keeping) {
  static const auto op = operator_handle<&keeping_device>("mhla::attention_keeping");
  return call_operator(op, call, keeping);
}

BackwardResult call_backward(const AttentionCall& call, const Gradients& gradients) {
  static const auto op = operator_handle<&backward_device>("mhla::attention_backward");
  return call_operator(op, call, gradients);
}

TORCH_LIBRARY(mhla, library) {
  library.def(kForwardSchema, {at::Tag::pt2_compliant_tag});
  library.def(kKeepingSchema, {at::Tag::pt2_compliant_tag});
  library.def(kBackwardSchema, {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(mhla, CPU, library) {
  library.impl("attention", kernel<&forward_device>);
  library.impl("attention_keeping", kernel<&keeping_device>);
  library.impl("attention_backward", kernel<&backward_device>);
}

TORCH_LIBRARY_IMPL(mhla, CUDA, library) {
  library.impl("attention", kernel<&forward_device>);
  library.impl("attention_keeping", kernel<&keeping_device>);
  library.impl("attention_backward", kernel<&backward_device>);
}

TORCH_LIBRARY_IMPL(mhla, Meta, library) {
  library.impl("attention", kernel<&forward_meta>);
  library.impl("attention_keeping", kernel<&keeping_meta>);
  library.impl("attention_backward", kernel<&backward_meta>);
}

TORCH_LIBRARY_IMPL(mhla, Autograd, library) {
  library.impl("attention", kernel<&forward_autograd>);
  library.impl("attention_keeping", torch::autograd::autogradNotImplementedFallback());
  library.impl("attention_backward", torch::autograd::autogradNotImplementedFallback());
}

TORCH_LIBRARY_IMPL(mhla, AutocastCPU, library) { library.impl("attention", kernel<&forward_autocast_cpu>); }

TORCH_LIBRARY_IMPL(mhla, AutocastCUDA, library) { library.impl("attention", kernel<&forward_autocast_cuda>); }

}  // namespace mhla::dispatch
