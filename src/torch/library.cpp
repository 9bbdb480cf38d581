// Registers torch.ops.mhla.attention, attention_keeping and attention_backward and calls them.
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>

#include "torch/arguments.hpp"

namespace mhla::dispatch {

ForwardResult call_forward(const Call& call) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mhla::attention", "")
                             .typed<decltype(forward_kernel<&forward_device>)>();
  return op.call(call.q, call.k, call.v, call.mixing, call.sizes, call.extents, call.feature_map, call.normalizer,
                 call.masking, call.algorithm, call.scale, call.eps, call.feature_eps, call.q_den, call.k_den,
                 call.cu_seqlens, call.initial_S, call.initial_z, call.initial_tokens, call.state_blocks);
}

KeepingResult call_keeping(const Call& call) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mhla::attention_keeping", "")
                             .typed<decltype(forward_kernel<&keeping_device, c10::SymInt>)>();
  return op.call(call.q, call.k, call.v, call.mixing, call.sizes, call.extents, call.feature_map, call.normalizer,
                 call.masking, call.algorithm, call.scale, call.eps, call.feature_eps, call.q_den, call.k_den,
                 call.cu_seqlens, call.initial_S, call.initial_z, call.initial_tokens, call.state_blocks, call.keep);
}

BackwardResult call_backward(const Call& call, const Gradients& gradients) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("mhla::attention_backward", "")
                             .typed<decltype(backward_kernel<&backward_device>)>();
  return op.call(call.q, call.k, call.v, call.mixing, call.sizes, call.extents, call.feature_map, call.normalizer,
                 call.masking, call.algorithm, call.scale, call.eps, call.feature_eps, call.q_den, call.k_den,
                 call.cu_seqlens, call.initial_S, call.initial_z, call.initial_tokens, call.state_blocks, gradients.o,
                 gradients.d_o, gradients.d_S, gradients.d_z, gradients.mixing_wanted, gradients.kept);
}

TORCH_LIBRARY(mhla, library) {
  library.def(kForwardSchema, {at::Tag::pt2_compliant_tag});
  library.def(kKeepingSchema, {at::Tag::pt2_compliant_tag});
  library.def(kBackwardSchema, {at::Tag::pt2_compliant_tag});
}

TORCH_LIBRARY_IMPL(mhla, CPU, library) {
  library.impl("attention", &forward_kernel<&forward_device>);
  library.impl("attention_keeping", &forward_kernel<&keeping_device, c10::SymInt>);
  library.impl("attention_backward", &backward_kernel<&backward_device>);
}

TORCH_LIBRARY_IMPL(mhla, CUDA, library) {
  library.impl("attention", &forward_kernel<&forward_device>);
  library.impl("attention_keeping", &forward_kernel<&keeping_device, c10::SymInt>);
  library.impl("attention_backward", &backward_kernel<&backward_device>);
}

TORCH_LIBRARY_IMPL(mhla, Meta, library) {
  library.impl("attention", &forward_kernel<&forward_meta>);
  library.impl("attention_keeping", &forward_kernel<&keeping_meta, c10::SymInt>);
  library.impl("attention_backward", &backward_kernel<&backward_meta>);
}

TORCH_LIBRARY_IMPL(mhla, Autograd, library) {
  library.impl("attention", &forward_kernel<&forward_autograd>);
  library.impl("attention_keeping", torch::autograd::autogradNotImplementedFallback());
  library.impl("attention_backward", torch::autograd::autogradNotImplementedFallback());
}

TORCH_LIBRARY_IMPL(mhla, AutocastCPU, library) { library.impl("attention", &forward_kernel<&forward_autocast_cpu>); }

TORCH_LIBRARY_IMPL(mhla, AutocastCUDA, library) { library.impl("attention", &forward_kernel<&forward_autocast_cuda>); }

}  // namespace mhla::dispatch
