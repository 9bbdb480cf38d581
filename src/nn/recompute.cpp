// Recomputation as an autograd function that keeps the block's input.
#include "nn/recompute.hpp"

#include <ATen/autocast_mode.h>
#include <torch/custom_class.h>

namespace mhla::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct KeptBlock : torch::CustomClassHolder {
  explicit KeptBlock(ConditionedFunction run) : run(std::move(run)) {}
  ConditionedFunction run;
};

// Autocast as it was in the forward pass. Weights that were cast without a gradient are forgotten first.
class AutocastAsBefore {
 public:
  AutocastAsBefore(at::DeviceType device, bool enabled, at::ScalarType dtype)
      : device_(device), enabled_(at::autocast::is_autocast_enabled(device)),
        dtype_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device, enabled);
    at::autocast::set_autocast_dtype(device, dtype);
  }
  ~AutocastAsBefore() {
    at::autocast::set_autocast_enabled(device_, enabled_);
    at::autocast::set_autocast_dtype(device_, dtype_);
  }
  AutocastAsBefore(const AutocastAsBefore&) = delete;
  AutocastAsBefore& operator=(const AutocastAsBefore&) = delete;

 private:
  at::DeviceType device_;
  bool enabled_;
  at::ScalarType dtype_;
};

struct RecomputeFunction : torch::autograd::Function<RecomputeFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const std::optional<at::Tensor>& given,
                            const ConditionedFunction& block) {
    const at::Tensor condition = given.value_or(at::Tensor());
    context->save_for_backward({x, condition});
    const auto device = x.device().type();
    auto& data = context->saved_data;
    data["block"] = c10::IValue::make_capsule(c10::make_intrusive<KeptBlock>(block));
    data["autocast"] = at::autocast::is_autocast_enabled(device);
    data["dtype"] = static_cast<std::int64_t>(at::autocast::get_autocast_dtype(device));
    return block(x, condition);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    const variable_list kept = context->get_saved_variables();
    auto& data = context->saved_data;
    const AutocastAsBefore autocast(kept[0].device().type(), data["autocast"].toBool(),
                                    static_cast<at::ScalarType>(data["dtype"].toInt()));
    const at::AutoGradMode with_gradient(true);
    const auto leaf = [](const at::Tensor& tensor) {
      return tensor.defined() ? tensor.detach().requires_grad_() : at::Tensor();
    };
    const at::Tensor x = leaf(kept[0]), condition = leaf(kept[1]);
    const auto block = c10::static_intrusive_pointer_cast<KeptBlock>(data["block"].toCapsule());
    torch::autograd::backward({block->run(x, condition)}, {d_outputs[0]});
    return {x.grad(), condition.defined() ? condition.grad() : at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor recompute(const ConditionedFunction& block, const at::Tensor& x, const at::Tensor& condition) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return block(x, condition);
  return RecomputeFunction::apply(x, condition.defined() ? std::optional(condition) : std::nullopt, block);
}

at::Tensor recompute(const TokenFunction& block, const at::Tensor& x) {
  return recompute([block](const at::Tensor& tokens, const at::Tensor& /*condition*/) { return block(tokens); }, x,
                   at::Tensor());
}

}  // namespace mhla::nn
