// Autograd and autocast of torch.ops.mhla.attention. Second derivatives are not implemented: differentiating
// attention_backward raises an error.
#include <ATen/autocast_mode.h>
#include <ATen/record_function.h>
#include <torch/custom_class.h>

#include <string>
#include <vector>

#include "torch/checks.hpp"
#include "torch/differentiated.hpp"
#include "torch/planned.hpp"

namespace mhla::dispatch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kSavedCall = "call";

OptionalTensor if_defined(const at::Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

at::Tensor defined_or_empty(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

// What the autograd graph keeps of a call beside its tensors: the settings, and the plan where this function ran it.
class SavedCall : public torch::CustomClassHolder {
 public:
  SavedCall(const AttentionCall& call, bool mixing_wanted, std::optional<Plan> plan)
      : mixing_wanted(mixing_wanted), plan(std::move(plan)), sizes_(call.sizes.vec()), extents_(call.extents.vec()),
        feature_map_(call.feature_map), normalizer_(call.normalizer), masking_(call.masking),
        algorithm_(call.algorithm), settings_(call) {
    for (at::Tensor* tensor : {&settings_.q, &settings_.k, &settings_.v, &settings_.mixing}) *tensor = at::Tensor();
    for (OptionalTensor* tensor :
         {&settings_.q_den, &settings_.k_den, &settings_.cu_seqlens, &settings_.initial_S, &settings_.initial_z})
      tensor->reset();
    settings_.sizes = sizes_, settings_.extents = extents_;
    settings_.feature_map = feature_map_, settings_.normalizer = normalizer_;
    settings_.masking = masking_, settings_.algorithm = algorithm_;
  }

  // Without tensors; its lists and names live as long as this does.
  const AttentionCall& settings() const { return settings_; }

  const bool mixing_wanted;
  const std::optional<Plan> plan;

 private:
  std::vector<c10::SymInt> sizes_;
  std::vector<std::int64_t> extents_;
  std::string feature_map_, normalizer_, masking_, algorithm_;
  AttentionCall settings_;
};

// Nothing but the device's kernel would see the call if it went on through the dispatcher: no tracing, no mode, no
// subclass of Tensor, no profiler.
template <typename... Tensors>
bool goes_to_device(const Tensors&... tensors) {
  c10::DispatchKeySet keys;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined()) keys = keys | tensor.key_set();
  };
  const auto add_optional = [&](const auto& tensor) {
    if constexpr (std::is_same_v<std::decay_t<decltype(tensor)>, at::Tensor>)
      add(tensor);
    else if (tensor)
      add(*tensor);
  };
  (add_optional(tensors), ...);
  const c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
  keys = ((keys | local.included_) - local.excluded_).remove(c10::DispatchKey::BackendSelect);
  const c10::DispatchKey first = keys.highestPriorityTypeId();
  return (first == c10::DispatchKey::CPU || first == c10::DispatchKey::CUDA) && !at::hasCallbacks();
}

bool goes_to_device(const AttentionCall& call) {
  return goes_to_device(call.q, call.k, call.v, call.mixing, call.q_den, call.k_den, call.cu_seqlens, call.initial_S,
                        call.initial_z);
}

BackwardResult differentiate(const AttentionCall& call, const Gradients& gradients, const std::optional<Plan>& plan) {
  // Who wants to differentiate the gradients gets an error from the dispatcher.
  if (plan && !at::GradMode::is_enabled()) {
    const at::AutoDispatchBelowADInplaceOrView below;
    if (goes_to_device(call) && goes_to_device(gradients.o, gradients.d_o, gradients.d_S, gradients.d_z, call.q)) {
      TorchExecution execution(call.q);
      if (is_planned(call, *plan, execution)) return run_backward(call, *plan, execution, gradients);
    }
  }
  return call_backward(call, gradients);
}

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& /*q*/, const at::Tensor& /*k*/,
                               const at::Tensor& /*v*/, const at::Tensor& mixing, const OptionalTensor& /*q_den*/,
                               const OptionalTensor& /*k_den*/, const OptionalTensor& /*initial_S*/,
                               const OptionalTensor& /*initial_z*/, const AttentionCall& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor o, S, z, kept;
    std::optional<Plan> plan;
    if (goes_to_device(call)) {
      TorchExecution execution(call.q);
      plan = plan_call(call, execution);
      if (plan->kept_bytes() > 0 && !call.cu_seqlens)
        kept = at::empty({static_cast<std::int64_t>(plan->kept_bytes())}, call.q.options().dtype(at::kByte));
      std::tie(o, S, z) = run_forward(call, *plan, execution, kept);
    } else if (const std::int64_t bytes = bytes_to_keep(call); bytes > 0) {
      std::tie(o, S, z, kept) = call_keeping(call, {bytes});
    } else {
      std::tie(o, S, z) = call_forward(call);
    }
    context->saved_data[kSavedCall] =
        c10::IValue::make_capsule(c10::make_intrusive<SavedCall>(call, mixing.requires_grad(), std::move(plan)));
    context->save_for_backward({call.q, call.k, call.v, call.mixing, defined_or_empty(call.q_den),
                                defined_or_empty(call.k_den), defined_or_empty(call.cu_seqlens),
                                defined_or_empty(call.initial_S), defined_or_empty(call.initial_z),
                                call.has_normalizer() ? o : at::Tensor(), kept});
    context->set_materialize_grads(false);
    if (call.state_blocks < 0) context->mark_non_differentiable({S, z});
    return {o, S, z};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    constexpr int kForwardArguments = 9;
    const bool any = std::any_of(d_outputs.begin(), d_outputs.end(), [](const auto& d) { return d.defined(); });
    if (!any) return variable_list(kForwardArguments);
    const variable_list saved = context->get_saved_variables();
    const auto holder = context->saved_data[kSavedCall].toCapsule();
    const auto& from_forward = static_cast<const SavedCall&>(*holder);
    AttentionCall call = from_forward.settings();
    call.q = saved[0], call.k = saved[1], call.v = saved[2], call.mixing = saved[3];
    call.q_den = if_defined(saved[4]), call.k_den = if_defined(saved[5]), call.cu_seqlens = if_defined(saved[6]);
    call.initial_S = if_defined(saved[7]), call.initial_z = if_defined(saved[8]);
    const bool state = call.state_blocks >= 0;
    const bool mixing_wanted = from_forward.mixing_wanted;
    const Gradients gradients{.o = if_defined(saved[9]),
                              .d_o = if_defined(d_outputs[0]),
                              .d_S = state ? if_defined(d_outputs[1]) : std::nullopt,
                              .d_z = state && call.has_normalizer() ? if_defined(d_outputs[2]) : std::nullopt,
                              .mixing_wanted = mixing_wanted,
                              .kept = if_defined(saved[10])};
    const auto [d_q, d_k, d_v, d_mixing, d_q_den, d_k_den, d_initial_S, d_initial_z] =
        differentiate(call, gradients, from_forward.plan);
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

AttentionCall autocast(const AttentionCall& call, c10::DeviceType device) {
  const auto target = at::autocast::get_autocast_dtype(device);
  const auto cast = [&](const at::Tensor& tensor) { return at::autocast::cached_cast(target, tensor, device); };
  AttentionCall result = call;
  result.q = cast(call.q), result.k = cast(call.k), result.v = cast(call.v);
  if (call.q_den) result.q_den = cast(*call.q_den);
  if (call.k_den) result.k_den = cast(*call.k_den);
  return result;
}

}  // namespace

ForwardResult forward_autograd(const AttentionCall& call) {
  const bool recorded = differentiated(call.q) || differentiated(call.k) || differentiated(call.v) ||
                        differentiated(call.mixing) || differentiated(call.q_den) || differentiated(call.k_den) ||
                        differentiated(call.initial_S) || differentiated(call.initial_z);
  if (!recorded) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return call_forward(call);
  }
  for (const auto& [tensor, argument] :
       {std::pair(&call.q, "q"), std::pair(&call.k, "k"), std::pair(&call.v, "v"), std::pair(&call.mixing, "mixing")})
    check_dense(*tensor, argument);  // autograd itself asks them for their device
  const variable_list outputs = AttentionFunction::apply(call.q, call.k, call.v, call.mixing, call.q_den, call.k_den,
                                                         call.initial_S, call.initial_z, call);
  return {outputs[0], outputs[1], outputs[2]};
}

ForwardResult forward_autocast_cpu(const AttentionCall& call) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCPU);
  return call_forward(autocast(call, c10::DeviceType::CPU));
}

ForwardResult forward_autocast_cuda(const AttentionCall& call) {
  const c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastCUDA);
  return call_forward(autocast(call, c10::DeviceType::CUDA));
}

}  // namespace mhla::dispatch
