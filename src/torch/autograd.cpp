// Autograd and autocast of torch.ops.mhla.attention. Second derivatives are not implemented: differentiating
// attention_backward raises an error.
#include <ATen/autocast_mode.h>

#include "torch/arguments.hpp"

namespace mhla::dispatch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

OptionalTensor if_defined(const at::Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

at::Tensor defined_or_empty(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

void save_settings(AutogradContext& context, const Call& call) {
  auto& data = context.saved_data;
  data["sizes"] = c10::IValue(c10::SymIntArrayRef(call.sizes));
  data["extents"] = call.extents;
  data["initial_tokens"] = call.initial_tokens;
  data["state_blocks"] = call.state_blocks;
  data["feature_map"] = call.feature_map;
  data["normalizer"] = call.normalizer;
  data["masking"] = call.masking;
  data["algorithm"] = call.algorithm;
  data["scale"] = call.scale;
  data["eps"] = call.eps;
  data["feature_eps"] = call.feature_eps;
}

Call restore_settings(AutogradContext& context) {
  auto& data = context.saved_data;
  Call call;
  call.sizes = data["sizes"].toSymIntVector();
  call.extents = data["extents"].toIntVector();
  call.initial_tokens = data["initial_tokens"].toSymInt();
  call.state_blocks = data["state_blocks"].toSymInt();
  call.feature_map = data["feature_map"].toStringRef();
  call.normalizer = data["normalizer"].toStringRef();
  call.masking = data["masking"].toStringRef();
  call.algorithm = data["algorithm"].toStringRef();
  call.scale = data["scale"].toDouble();
  call.eps = data["eps"].toDouble();
  call.feature_eps = data["feature_eps"].toDouble();
  return call;
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& /*q*/, const at::Tensor& /*k*/,
                               const at::Tensor& /*v*/, const at::Tensor& mixing, const OptionalTensor& /*q_den*/,
                               const OptionalTensor& /*k_den*/, const OptionalTensor& /*initial_S*/,
                               const OptionalTensor& /*initial_z*/, const Call& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    auto [o, S, z] = call_forward(call);
    save_settings(*context, call);
    context->saved_data["mixing_wanted"] = mixing.requires_grad();
    context->save_for_backward({call.q, call.k, call.v, call.mixing, defined_or_empty(call.q_den),
                                defined_or_empty(call.k_den), defined_or_empty(call.cu_seqlens),
                                defined_or_empty(call.initial_S), defined_or_empty(call.initial_z),
                                call.has_normalizer() ? o : at::Tensor()});
    context->set_materialize_grads(false);
    if (call.state_blocks < 0) context->mark_non_differentiable({S, z});
    return {o, S, z};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    constexpr int kForwardArguments = 9;
    const bool any = std::any_of(d_outputs.begin(), d_outputs.end(), [](const auto& d) { return d.defined(); });
    if (!any) return variable_list(kForwardArguments);
    const variable_list saved = context->get_saved_variables();
    Call call = restore_settings(*context);
    call.q = saved[0], call.k = saved[1], call.v = saved[2], call.mixing = saved[3];
    call.q_den = if_defined(saved[4]), call.k_den = if_defined(saved[5]), call.cu_seqlens = if_defined(saved[6]);
    call.initial_S = if_defined(saved[7]), call.initial_z = if_defined(saved[8]);
    const bool state = call.state_blocks >= 0;
    const bool mixing_wanted = context->saved_data["mixing_wanted"].toBool();
    const auto [d_q, d_k, d_v, d_mixing, d_q_den, d_k_den, d_initial_S, d_initial_z] =
        call_backward(call, {.o = if_defined(saved[9]),
                             .d_o = if_defined(d_outputs[0]),
                             .d_S = state ? if_defined(d_outputs[1]) : std::nullopt,
                             .d_z = state && call.has_normalizer() ? if_defined(d_outputs[2]) : std::nullopt,
                             .mixing_wanted = mixing_wanted});
    return {d_q,
            d_k,
            d_v,
            mixing_wanted ? d_mixing : at::Tensor(),
            call.q_den ? d_q_den : at::Tensor(),
            call.k_den ? d_k_den : at::Tensor(),
            call.initial_S ? d_initial_S : at::Tensor(),
            call.initial_z ? d_initial_z : at::Tensor(),
            at::Tensor()};
  }
};

Call autocast(const Call& call, c10::DeviceType device) {
  const auto target = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const at::Tensor& tensor) { return at::autocast::cached_cast(target, tensor, device); };
  Call result = call;
  result.q = cast(call.q), result.k = cast(call.k), result.v = cast(call.v);
  if (call.q_den) result.q_den = cast(*call.q_den);
  if (call.k_den) result.k_den = cast(*call.k_den);
  return result;
}

}  // namespace

ForwardResult forward_autograd(const Call& call) {
  const variable_list outputs = AttentionFunction::apply(call.q, call.k, call.v, call.mixing, call.q_den, call.k_den,
                                                         call.initial_S, call.initial_z, call);
  return {outputs[0], outputs[1], outputs[2]};
}

ForwardResult forward_autocast_cpu(const Call& call) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCPU);
  return call_forward(autocast(call, c10::DeviceType::CPU));
}

ForwardResult forward_autocast_cuda(const Call& call) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCUDA);
  return call_forward(autocast(call, c10::DeviceType::CUDA));
}

}  // namespace mhla::dispatch
