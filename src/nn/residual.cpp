// The fused kernel as an autograd function, and torch's kernels where it does not apply.
#include "nn/residual.hpp"

#include "mhla/layers.hpp"
#include "nn/drop_path.hpp"
#include "nn/fused.hpp"

namespace mhla::nn {
namespace {

using cuda::layers::AddNorm;
using dispatch::OptionalTensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// An RMSNorm has no bias.
AddNorm problem_of(const at::Tensor& sum, const at::Tensor& bias, at::ScalarType dtype, double eps) {
  return {.rows = sum.size(0) * sum.size(1),
          .channels = sum.size(2),
          .rows_per_factor = sum.size(1),
          .rms = !bias.defined(),
          .stream_dtype = dispatch::dtype_of(sum, "x"),
          .dtype = fused_dtype(dtype),
          .eps = eps};
}

// Returns the sum, where there is a branch, and its norm.
struct AddNormFunction : torch::autograd::Function<AddNormFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x, const OptionalTensor& branch,
                               const OptionalTensor& branch_bias, const OptionalTensor& factors,
                               const at::Tensor& weight, const OptionalTensor& given_bias, double eps,
                               at::ScalarType dtype) {
    const at::Tensor bias = given_bias.value_or(at::Tensor());
    dispatch::TorchExecution execution(x);
    const at::Tensor y = at::empty(x.sizes(), x.options().dtype(dtype));
    const at::Tensor sum = branch ? at::empty_like(x) : x;
    const at::Tensor statistics = at::empty({x.size(0) * x.size(1), 2}, x.options().dtype(at::kFloat));
    cuda::layers::forward(problem_of(x, bias, dtype, eps),
                          {.x = x.const_data_ptr(),
                           .branch = branch ? branch->const_data_ptr() : nullptr,
                           .branch_bias = dispatch::vector_view(branch_bias.value_or(at::Tensor())),
                           .factor = factors ? factors->const_data_ptr<float>() : nullptr,
                           .weight = dispatch::vector_view(weight),
                           .bias = dispatch::vector_view(bias),
                           .sum = branch ? sum.mutable_data_ptr() : nullptr,
                           .y = y.mutable_data_ptr(),
                           .statistics = statistics.mutable_data_ptr<float>()},
                          execution.run(0).stream);
    context->save_for_backward(
        {sum, statistics, factors.value_or(at::Tensor()), weight, branch_bias.value_or(at::Tensor()), bias});
    context->saved_data["eps"] = eps;
    context->saved_data["branch"] = branch.has_value();
    if (branch) return {sum, y};
    return {y};
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    differentiated_once("add_norm");
    const variable_list saved = context->get_saved_variables();
    const auto& sum = saved[0];
    const auto& weight = saved[3];
    const bool branch = context->saved_data["branch"].toBool();
    const at::Tensor d_y = d_outputs.back().contiguous(), d_sum = branch ? d_outputs[0].contiguous() : at::Tensor();
    const AddNorm p = problem_of(sum, saved[5], d_y.scalar_type(), context->saved_data["eps"].toDouble());
    dispatch::TorchExecution execution(sum);
    const at::Tensor d_x = at::empty_like(sum), d_branch = branch ? at::empty_like(d_y) : at::Tensor();
    const auto like = [](const at::Tensor& parameter) {
      return parameter.defined() ? at::empty_like(parameter) : at::Tensor();
    };
    const at::Tensor d_weight = at::empty_like(weight), d_bias = like(saved[5]), d_branch_bias = like(saved[4]);
    const at::Tensor partial = partial_sums(sum, p.partial_elements());
    cuda::layers::backward(p,
                           {.sum = sum.const_data_ptr(),
                            .statistics = saved[1].const_data_ptr<float>(),
                            .factor = saved[2].defined() ? saved[2].const_data_ptr<float>() : nullptr,
                            .weight = dispatch::vector_view(weight),
                            .d_y = d_y.const_data_ptr(),
                            .d_sum = branch ? d_sum.const_data_ptr() : nullptr,
                            .d_x = d_x.mutable_data_ptr(),
                            .d_branch = branch ? d_branch.mutable_data_ptr() : nullptr,
                            .d_weight = dispatch::mutable_vector_view(d_weight),
                            .d_bias = dispatch::mutable_vector_view(d_bias),
                            .d_branch_bias = dispatch::mutable_vector_view(d_branch_bias),
                            .partial = partial.mutable_data_ptr<float>()},
                           execution.run(0).stream);
    return {d_x, d_branch, d_branch_bias, {}, d_weight, d_bias, {}, {}};
  }
};

bool fusible(const at::Tensor& x, const Branch& branch, const NormImpl& norm, at::ScalarType dtype) {
  return x.dim() == 3 && fused_input(x) && (x.scalar_type() == at::kFloat || x.scalar_type() == dtype) &&
         (!branch.values.defined() || (fused_input(branch.values) && branch.values.scalar_type() == dtype)) &&
         problem_of(x, norm.bias, dtype, norm.eps).supported();
}

OptionalTensor given(const at::Tensor& tensor) { return tensor.defined() ? OptionalTensor(tensor) : std::nullopt; }

}  // namespace

void Residual::add(const Branch& branch, const at::Tensor& factors) {
  x_ = value();
  branch_ = branch;
  factors_ = factors;
}

at::Tensor Residual::value() {
  if (branch_.values.defined()) x_ = add_branch(x_, branch_.sum(), factors_);
  branch_ = {};
  return x_;
}

at::Tensor Residual::normed(NormImpl& norm) {
  const at::ScalarType dtype = product_type(x_);
  if (!fusible(x_, branch_, norm, dtype)) return norm.forward(value());
  const bool adds = branch_.values.defined();
  const OptionalTensor factors = adds && factors_.defined() ? OptionalTensor(factors_.to(at::kFloat)) : std::nullopt;
  const variable_list outputs = AddNormFunction::apply(x_, given(branch_.values), given(branch_.bias), factors,
                                                       norm.weight, given(norm.bias), norm.eps, dtype);
  if (adds) x_ = outputs.front();
  branch_ = {};
  return outputs.back();
}

}  // namespace mhla::nn
