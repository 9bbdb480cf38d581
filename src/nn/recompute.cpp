// Recomputation as an autograd function that keeps the block's input.
#include "nn/recompute.hpp"

#include <ATen/autocast_mode.h>
#include <torch/custom_class.h>

namespace mhla::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

using ListFunction = std::function<at::Tensor(const variable_list&)>;

struct KeptBlock : torch::CustomClassHolder {
  explicit KeptBlock(ListFunction run) : run(std::move(run)) {}
  ListFunction run;
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
  static at::Tensor forward(AutogradContext* context, const variable_list& inputs, const ListFunction& block) {
    context->save_for_backward(inputs);
    const auto device = inputs.front().device().type();
    auto& data = context->saved_data;
    data["block"] = c10::IValue::make_capsule(c10::make_intrusive<KeptBlock>(block));
    data["autocast"] = at::autocast::is_autocast_enabled(device);
    data["dtype"] = static_cast<std::int64_t>(at::autocast::get_autocast_dtype(device));
    return block(inputs);
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    variable_list inputs = context->get_saved_variables();
    auto& data = context->saved_data;
    const AutocastAsBefore autocast(inputs.front().device().type(), data["autocast"].toBool(),
                                    static_cast<at::ScalarType>(data["dtype"].toInt()));
    const at::AutoGradMode with_gradient(true);
    for (at::Tensor& input : inputs) input = input.detach().requires_grad_();
    const auto block = c10::static_intrusive_pointer_cast<KeptBlock>(data["block"].toCapsule());
    torch::autograd::backward({block->run(inputs)}, {d_outputs[0]});
    variable_list gradients;
    for (const at::Tensor& input : inputs) gradients.push_back(input.grad());
    gradients.emplace_back();  // of the block
    return gradients;
  }
};

}  // namespace

at::Tensor recompute(const TokenFunction& block, const at::Tensor& x) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return block(x);
  return RecomputeFunction::apply(variable_list{x},
                                  ListFunction([block](const variable_list& inputs) { return block(inputs[0]); }));
}

at::Tensor recompute(const ConditionedFunction& block, const at::Tensor& x, const at::Tensor& condition) {
  if (!at::GradMode::is_enabled() || !x.requires_grad()) return block(x, condition);
  return RecomputeFunction::apply(variable_list{x, condition}, ListFunction([block](const variable_list& inputs) {
                                    return block(inputs[0], inputs[1]);
                                  }));
}

}  // namespace mhla::nn
