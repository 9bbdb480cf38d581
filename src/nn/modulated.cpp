// The fused kernel as an autograd function, and torch's kernels where it does not apply.
#include "nn/modulated.hpp"

#include "mhla/fused_torch.hpp"
#include "mhla/layers.hpp"
#include "nn/fused.hpp"

namespace mhla::nn {
namespace {

using cuda::layers::AddModulate;
using dispatch::OptionalTensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr double kEps = 1e-6;

AddModulate problem_of(const at::Tensor& sum, at::ScalarType dtype) {
  return {.batch = sum.size(0),
          .tokens = sum.size(1),
          .channels = sum.size(2),
          .stream_dtype = dispatch::dtype_of(sum, "x"),
          .dtype = fused_dtype(dtype),
          .eps = kEps};
}

AddModulate::Part part_of(const at::Tensor& part) {
  if (!part.defined()) return {};
  return {part.const_data_ptr(), dispatch::dtype_of(part, "modulation"), part.stride(0)};
}

// What is added to x, and how the sum is normalised; one of both may be missing.
struct Step {
  OptionalTensor branch{}, branch_bias{}, gate{}, scale{}, shift{};
};

struct AddModulateFunction : torch::autograd::Function<AddModulateFunction> {
  // Returns the sum, where there is a branch, and its norm, where there is a scale.
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const OptionalTensor& branch,
                               const OptionalTensor& branch_bias, const OptionalTensor& gate,
                               const OptionalTensor& scale, const OptionalTensor& shift, at::ScalarType dtype) {
    const at::Tensor none;
    const at::Tensor sum = branch ? at::empty_like(x) : x;
    const at::Tensor y = scale ? at::empty(x.sizes(), x.options().dtype(dtype)) : none;
    const at::Tensor statistics = at::empty({scale ? x.size(0) * x.size(1) : 0, 2}, x.options().dtype(at::kFloat));
    dispatch::TorchExecution execution(x);
    cuda::layers::forward(problem_of(x, dtype),
                          {.x = x.const_data_ptr(),
                           .branch = branch ? branch->const_data_ptr() : nullptr,
                           .branch_bias = dispatch::vector_view(branch_bias.value_or(none)),
                           .gate = part_of(gate.value_or(none)),
                           .scale = part_of(scale.value_or(none)),
                           .shift = part_of(shift.value_or(none)),
                           .sum = branch ? sum.mutable_data_ptr() : nullptr,
                           .y = scale ? y.mutable_data_ptr() : nullptr,
                           .statistics = statistics.mutable_data_ptr<float>()},
                          execution.run(0).stream);
    // Without a norm the backward pass does not read the sum.
    context->save_for_backward({scale ? sum : none, statistics, branch.value_or(none), branch_bias.value_or(none),
                                gate.value_or(none), scale.value_or(none), shift.value_or(none)});
    context->saved_data["dtype"] = static_cast<std::int64_t>(dtype);
    variable_list outputs;
    if (branch) outputs.push_back(sum);
    if (scale) outputs.push_back(y);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    differentiated_once("add_modulate");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &sum = saved[0], &branch = saved[2], &gate = saved[4], &scale = saved[5], &shift = saved[6];
    const at::Tensor d_sum = branch.defined() ? d_outputs.front().contiguous() : at::Tensor();
    const at::Tensor d_y = scale.defined() ? d_outputs.back().contiguous() : at::Tensor();
    const AddModulate p =
        problem_of(d_sum.defined() ? d_sum : sum, static_cast<at::ScalarType>(context->saved_data["dtype"].toInt()));
    const auto gradient_of = [](const at::Tensor& tensor) {
      return tensor.defined() ? at::empty(tensor.sizes(), tensor.options()) : at::Tensor();
    };
    const at::Tensor d_x = scale.defined() ? gradient_of(sum) : d_sum;
    const at::Tensor d_branch = gradient_of(branch), d_branch_bias = gradient_of(saved[3]);
    const at::Tensor d_gate = gradient_of(gate), d_scale = gradient_of(scale), d_shift = gradient_of(shift);
    const at::Tensor partial = partial_sums(d_x, p.partial_elements());
    dispatch::TorchExecution execution(d_x);
    cuda::layers::backward(p,
                           {.sum = sum.defined() ? sum.const_data_ptr() : nullptr,
                            .statistics = saved[1].const_data_ptr<float>(),
                            .branch = branch.defined() ? branch.const_data_ptr() : nullptr,
                            .branch_bias = dispatch::vector_view(saved[3]),
                            .gate = part_of(gate),
                            .scale = part_of(scale),
                            .d_y = d_y.defined() ? d_y.const_data_ptr() : nullptr,
                            .d_sum = d_sum.defined() ? d_sum.const_data_ptr() : nullptr,
                            .d_x = scale.defined() ? d_x.mutable_data_ptr() : nullptr,
                            .d_branch = branch.defined() ? d_branch.mutable_data_ptr() : nullptr,
                            .d_gate = dispatch::mutable_vector_view(d_gate),
                            .d_scale = dispatch::mutable_vector_view(d_scale),
                            .d_shift = dispatch::mutable_vector_view(d_shift),
                            .d_branch_bias = dispatch::mutable_vector_view(d_branch_bias),
                            .partial = partial.mutable_data_ptr<float>()},
                           execution.run(0).stream);
    return {d_x, d_branch, d_branch_bias, d_gate, d_scale, d_shift, {}};
  }
};

bool readable(const OptionalTensor& part) {
  if (!part) return true;
  const auto vector = static_cast<std::uintptr_t>(4 * part->element_size());
  return part->is_cuda() && part->scalar_type() != at::kDouble && part->dim() == 2 && part->stride(1) == 1 &&
         part->stride(0) % 4 == 0 && reinterpret_cast<std::uintptr_t>(part->const_data_ptr()) % vector == 0;
}

bool fusible(const at::Tensor& x, const Step& step, at::ScalarType dtype) {
  return x.dim() == 3 && fused_input(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == dtype) &&
         (!step.branch || (fused_input(*step.branch) && step.branch->scalar_type() == dtype)) && readable(step.gate) &&
         readable(step.scale) && readable(step.shift) && problem_of(x, dtype).supported();
}

// Empty where there is no kernel for it.
variable_list fused_step(const at::Tensor& x, const Step& step) {
  const at::ScalarType dtype = product_type(x);
  if (!fusible(x, step, dtype)) return {};
  return AddModulateFunction::apply(x, step.branch, step.branch_bias, step.gate, step.scale, step.shift, dtype);
}

OptionalTensor bias_of(const Branch& branch) {
  return branch.bias.defined() ? OptionalTensor(branch.bias) : std::nullopt;
}

}  // namespace

at::Tensor modulated(const at::Tensor& x, const Modulation& modulation) {
  const auto done = fused_step(x, {.scale = modulation.scale, .shift = modulation.shift});
  return done.empty() ? fused::modulate(x, modulation.scale, modulation.shift, {}, {}, kEps) : done.front();
}

at::Tensor add_gated(const at::Tensor& x, const Branch& branch, const at::Tensor& gate) {
  const auto done = fused_step(x, {.branch = branch.values, .branch_bias = bias_of(branch), .gate = gate});
  return done.empty() ? x + gate.unsqueeze(1) * branch.sum() : done.front();
}

std::pair<at::Tensor, at::Tensor> add_modulated(const at::Tensor& x, const Branch& branch, const at::Tensor& gate,
                                                const Modulation& modulation) {
  const auto done = fused_step(x, {.branch = branch.values,
                                   .branch_bias = bias_of(branch),
                                   .gate = gate,
                                   .scale = modulation.scale,
                                   .shift = modulation.shift});
  if (!done.empty()) return {done.front(), done.back()};
  const at::Tensor sum = x + gate.unsqueeze(1) * branch.sum();
  return {sum, fused::modulate(sum, modulation.scale, modulation.shift, {}, {}, kEps)};
}

}  // namespace mhla::nn
