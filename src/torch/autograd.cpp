// Autograd and autocast of torch.ops.mhla.attention. Second derivatives are not implemented: differentiating
// attention_backward raises an error.
#include <ATen/autocast_mode.h>

#include <string>
#include <vector>

#include "torch/arguments.hpp"
#include "torch/differentiated.hpp"

namespace mhla::dispatch {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

OptionalTensor if_defined(const at::Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

at::Tensor defined_or_empty(const OptionalTensor& tensor) { return tensor.value_or(at::Tensor()); }

// The settings of a call as the autograd graph keeps them.
void save_settings(AutogradContext& context, const Call& call, bool mixing_wanted) {
  auto& data = context.saved_data;
  data["sizes"] = c10::IValue(call.sizes);
  data["extents"] = call.extents;
  data["counts"] = c10::IValue(c10::SymIntArrayRef({call.initial_tokens, call.state_blocks}));
  data["names"] = std::vector<std::string>{std::string(call.feature_map), std::string(call.normalizer),
                                           std::string(call.masking), std::string(call.algorithm)};
  data["numbers"] = std::vector<double>{call.scale, call.eps, call.feature_eps};
  data["mixing_wanted"] = mixing_wanted;
}

// What save_settings() kept; holds the lists and names that call() refers to.
class SavedSettings {
 public:
  explicit SavedSettings(AutogradContext& context)
      : sizes_(context.saved_data["sizes"].toSymIntVector()), extents_(context.saved_data["extents"].toIntVector()),
        counts_(context.saved_data["counts"].toSymIntVector()),
        names_(context.saved_data["names"].to<std::vector<std::string>>()),
        numbers_(context.saved_data["numbers"].toDoubleVector()) {}

  Call call() const {
    Call call;
    call.initial_tokens = counts_[0], call.state_blocks = counts_[1];
    call.sizes = sizes_, call.extents = extents_;
    call.feature_map = names_[0], call.normalizer = names_[1], call.masking = names_[2], call.algorithm = names_[3];
    call.scale = numbers_[0], call.eps = numbers_[1], call.feature_eps = numbers_[2];
    return call;
  }

 private:
  std::vector<c10::SymInt> sizes_;
  std::vector<std::int64_t> extents_;
  std::vector<c10::SymInt> counts_;
  std::vector<std::string> names_;
  std::vector<double> numbers_;
};

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& /*q*/, const at::Tensor& /*k*/,
                               const at::Tensor& /*v*/, const at::Tensor& mixing, const OptionalTensor& /*q_den*/,
                               const OptionalTensor& /*k_den*/, const OptionalTensor& /*initial_S*/,
                               const OptionalTensor& /*initial_z*/, const Call& call) {
    const at::AutoDispatchBelowADInplaceOrView below;
    at::Tensor o, S, z, kept;
    if (call.keep > 0)
      std::tie(o, S, z, kept) = call_keeping(call);
    else
      std::tie(o, S, z) = call_forward(call);
    save_settings(*context, call, mixing.requires_grad());
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
    const SavedSettings settings(*context);
    Call call = settings.call();
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
                             .mixing_wanted = mixing_wanted,
                             .kept = if_defined(saved[10])});
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
  const bool recorded = differentiated(call.q) || differentiated(call.k) || differentiated(call.v) ||
                        differentiated(call.mixing) || differentiated(call.q_den) || differentiated(call.k_den) ||
                        differentiated(call.initial_S) || differentiated(call.initial_z);
  if (!recorded) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return call_forward(call);
  }
  Call keeping = call;
  keeping.keep = bytes_to_keep(call);
  const variable_list outputs = AttentionFunction::apply(call.q, call.k, call.v, call.mixing, call.q_den, call.k_den,
                                                         call.initial_S, call.initial_z, keeping);
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
