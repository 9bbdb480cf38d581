// One order of summation, one way to round.
#include "nn/projection.hpp"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <cmath>
#include <vector>

#include "mhla/row_product.hpp"
#include "torch/execution.hpp"

namespace mhla::nn {

bool bits_of_rows(const at::Tensor& x) {
  const auto type = x.scalar_type();
  return x.dim() >= 3 && x.size(1) == 1 && x.is_cpu() && (type == at::kFloat || type == at::kDouble) &&
         !at::GradMode::is_enabled() && !at::autocast::is_autocast_enabled(at::kCPU);
}

at::Tensor projected(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const bool alike = weight.scalar_type() == x.scalar_type() && weight.is_contiguous() && weight.size(1) == x.size(-1);
  if (!alike || !bits_of_rows(x)) return at::linear(x, weight, bias);
  dispatch::TorchExecution execution(x);
  const at::Tensor rows = x.contiguous();
  std::vector<std::int64_t> sizes = x.sizes().vec();
  sizes.back() = weight.size(0);
  at::Tensor y = at::empty(sizes, x.options());
  row_product({.rows = x.numel() / weight.size(1),
               .inputs = weight.size(1),
               .outputs = weight.size(0),
               .dtype = x.scalar_type() == at::kDouble ? DType::f64 : DType::f32},
              {.x = rows.const_data_ptr(),
               .weight = weight.const_data_ptr(),
               .y = y.mutable_data_ptr(),
               .run = execution.run(0)});
  return bias.defined() ? y.add_(bias) : y;
}

at::Tensor silu_of(const at::Tensor& x) {
  if (!bits_of_rows(x)) return at::silu(x);
  at::Tensor y = x.contiguous().clone();
  const auto each = [&]<typename T>() {
    T* const values = y.mutable_data_ptr<T>();
    at::parallel_for(0, y.numel(), at::internal::GRAIN_SIZE, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[i] /= T(1) + std::exp(-values[i]);
    });
  };
  if (x.scalar_type() == at::kDouble)
    each.operator()<double>();
  else
    each.operator()<float>();
  return y;
}

}  // namespace mhla::nn
