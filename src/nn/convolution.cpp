// Convolution of every channel by itself as an autograd function, and torch's where there is no kernel for it.
#include "nn/convolution.hpp"

#include "mhla/layers.hpp"
#include "nn/fused.hpp"

namespace mhla::nn {
namespace {

using cuda::layers::Depthwise;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Depthwise problem_of(const at::Tensor& tokens, const at::Tensor& weight, Grid grid) {
  return {.batch = tokens.size(0),
          .height = grid.height,
          .width = grid.width,
          .channels = tokens.size(2),
          .side = static_cast<int>(weight.size(2)),
          .dtype = fused_dtype(tokens.scalar_type())};
}

Depthwise::Tokens view_of(const at::Tensor& tokens) { return {tokens.const_data_ptr(), tokens.stride(1)}; }

// An undefined base is zero.
struct ConvolvedFunction : torch::autograd::Function<ConvolvedFunction> {
  static at::Tensor forward(AutogradContext* context, const dispatch::OptionalTensor& base, const at::Tensor& tokens,
                            const at::Tensor& weight, const at::Tensor& bias, std::int64_t height, std::int64_t width) {
    dispatch::TorchExecution execution(tokens);
    at::Tensor y = at::empty(tokens.sizes(), tokens.options());
    cuda::layers::forward(problem_of(tokens, weight, {height, width}),
                          {.x = view_of(tokens),
                           .weight = dispatch::vector_view(weight),
                           .bias = dispatch::vector_view(bias),
                           .base = base ? base->const_data_ptr() : nullptr,
                           .y = y.mutable_data_ptr()},
                          execution.run(0).stream);
    context->save_for_backward({tokens, weight, bias});
    context->saved_data["grid"] = std::vector{height, width};
    context->saved_data["base"] = base.has_value();
    return y;
  }

  static variable_list backward(AutogradContext* context, const variable_list& d_outputs) {
    differentiated_once("a depthwise convolution");
    const variable_list saved = context->get_saved_variables();
    const auto& tokens = saved[0];
    const auto& weight = saved[1];
    const auto grid = context->saved_data["grid"].toIntVector();
    const at::Tensor d_y = d_outputs[0].contiguous();
    const Depthwise p = problem_of(tokens, weight, {grid[0], grid[1]});
    dispatch::TorchExecution execution(d_y);
    void* const stream = execution.run(0).stream;
    const at::Tensor d_tokens = at::empty_like(d_y), d_weight = at::empty_like(weight),
                     d_bias = at::empty_like(saved[2]);
    cuda::layers::forward(p,
                          {.x = view_of(d_y),
                           .weight = dispatch::vector_view(weight),
                           .y = d_tokens.mutable_data_ptr(),
                           .transposed = true},
                          stream);
    const at::Tensor partial = partial_sums(d_y, p.partial_elements());
    cuda::layers::filter_gradient(p,
                                  {.x = view_of(tokens),
                                   .d_y = d_y.const_data_ptr(),
                                   .d_weight = dispatch::mutable_vector_view(d_weight),
                                   .d_bias = dispatch::mutable_vector_view(d_bias),
                                   .partial = partial.mutable_data_ptr<float>()},
                                  stream);
    const bool base = context->saved_data["base"].toBool();
    return {base ? d_y : at::Tensor(), d_tokens, d_weight, d_bias, {}, {}};
  }
};

bool fusible(const at::Tensor& tokens, const torch::nn::Conv2d& convolution, Grid grid) {
  return fused_rows(tokens) && tokens.stride(2) == 1 && tokens.stride(1) % 8 == 0 &&
         tokens.stride(0) == tokens.size(1) * tokens.stride(1) && convolution->weight.is_contiguous() &&
         convolution->weight.size(1) == 1 && problem_of(tokens, convolution->weight, grid).supported();
}

}  // namespace

at::Tensor add_convolved(const at::Tensor& base, torch::nn::Conv2d& convolution, const at::Tensor& tokens, Grid grid) {
  if (fusible(tokens, convolution, grid) && fused_input(base) && tokens.scalar_type() == base.scalar_type() &&
      tokens.sizes() == base.sizes())
    return ConvolvedFunction::apply(base, tokens, convolution->weight, convolution->bias, grid.height, grid.width);
  return base + as_tokens(convolution->forward(as_image(tokens, grid)));
}

at::Tensor convolved(torch::nn::Conv2d& convolution, const at::Tensor& tokens, Grid grid) {
  if (fusible(tokens, convolution, grid))
    return ConvolvedFunction::apply(dispatch::OptionalTensor(), tokens, convolution->weight, convolution->bias,
                                    grid.height, grid.width);
  return as_tokens(convolution->forward(as_image(tokens, grid)));
}

}  // namespace mhla::nn
