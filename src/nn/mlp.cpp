// gelu(x + bias) and silu(a) b as autograd functions.
#include "nn/mlp.hpp"

#include "mhla/layers.hpp"
#include "nn/fused.hpp"
#include "nn/projection.hpp"

namespace mhla::nn {
namespace {

using cuda::layers::BiasGelu;
using cuda::layers::SwiGlu;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

BiasGelu problem_of(const at::Tensor& x, Gelu gelu) {
  return {.rows = x.numel() / x.size(-1),
          .channels = x.size(-1),
          .tanh = gelu == Gelu::tanh,
          .dtype = fused_dtype(x.scalar_type())};
}

struct BiasGeluFunction : torch::autograd::Function<BiasGeluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bias, Gelu gelu) {
    dispatch::TorchExecution execution(x);
    at::Tensor y = at::empty_like(x);
    cuda::layers::forward(problem_of(x, gelu),
                          {.x = x.const_data_ptr(), .bias = dispatch::vector_view(bias), .y = y.mutable_data_ptr()},
                          execution.run(0).stream);
    context->save_for_backward({x, bias});
    context->saved_data["gelu"] = static_cast<std::int64_t>(gelu);
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    differentiated_once("bias_gelu");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor d_y = d_outputs[0].contiguous();
    const BiasGelu p = problem_of(saved[0], static_cast<Gelu>(context->saved_data["gelu"].toInt()));
    dispatch::TorchExecution execution(d_y);
    const at::Tensor d_x = at::empty_like(d_y), d_bias = at::empty_like(saved[1]);
    const at::Tensor partial = partial_sums(d_y, p.partial_elements());
    cuda::layers::backward(p,
                           {.x = saved[0].const_data_ptr(),
                            .bias = dispatch::vector_view(saved[1]),
                            .d_y = d_y.const_data_ptr(),
                            .d_x = d_x.mutable_data_ptr(),
                            .d_bias = dispatch::mutable_vector_view(d_bias),
                            .partial = partial.mutable_data_ptr<float>()},
                           execution.run(0).stream);
    return {d_x, d_bias, {}};
  }
};

SwiGlu problem_of(const at::Tensor& a) { return {.elements = a.numel(), .dtype = fused_dtype(a.scalar_type())}; }

struct SwiGluFunction : torch::autograd::Function<SwiGluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& a, const at::Tensor& b) {
    dispatch::TorchExecution execution(a);
    at::Tensor y = at::empty_like(a);
    cuda::layers::forward(problem_of(a), {.a = a.const_data_ptr(), .b = b.const_data_ptr(), .y = y.mutable_data_ptr()},
                          execution.run(0).stream);
    context->save_for_backward({a, b});
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    differentiated_once("swiglu");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor d_y = d_outputs[0].contiguous();
    dispatch::TorchExecution execution(d_y);
    const at::Tensor d_a = at::empty_like(d_y), d_b = at::empty_like(d_y);
    cuda::layers::backward(problem_of(d_y),
                           {.a = saved[0].const_data_ptr(),
                            .b = saved[1].const_data_ptr(),
                            .d_y = d_y.const_data_ptr(),
                            .d_a = d_a.mutable_data_ptr(),
                            .d_b = d_b.mutable_data_ptr()},
                           execution.run(0).stream);
    return {d_a, d_b};
  }
};

}  // namespace

at::Tensor silu_product(const at::Tensor& a, const at::Tensor& b) {
  if (fused_input(a) && fused_input(b) && a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
      problem_of(a).supported())
    return SwiGluFunction::apply(a, b);
  return silu_of(a) * b;
}

at::Tensor bias_gelu(const at::Tensor& x, const at::Tensor& bias, Gelu gelu) {
  if (fused_input(x) && problem_of(x, gelu).supported()) return BiasGeluFunction::apply(x, bias, gelu);
  return at::gelu(x + bias.to(x.scalar_type()), form_of(gelu));
}

at::Tensor GatedMlpImpl::forward(const at::Tensor& x) {
  return projected(silu_product(projected(x, gate_proj), projected(x, up_proj)), down_proj);
}

}  // namespace mhla::nn
