// What the dispatcher operators of the fused operators share: checks of tensors and views of them.
#pragma once

#include <torch/library.h>
#include <torch/torch.h>

#include <string_view>

#include "mhla/fused.hpp"
#include "torch/checks.hpp"

namespace mhla::dispatch {

// check_tokens() of a tensor that has columns.
void check_token_rows(const at::Tensor& x, std::string_view argument, std::int64_t axes, const char* shape);

// A tensor of the shape, dtype and device of x, with contiguous last axis.
void check_like(const at::Tensor& tensor, std::string_view argument, const at::Tensor& x);

// A gradient of an output that has the shape of x: any strides.
void check_gradient(const OptionalTensor& gradient, std::string_view argument, const at::Tensor& x);

// A parameter beside x: on its device, in any floating-point type, float64 beside float64 only.
void check_parameter(const at::Tensor& tensor, std::string_view argument, const at::Tensor& x);
void check_vector(const OptionalTensor& vector, std::string_view argument, const c10::SymInt& width,
                  const at::Tensor& x);

// The tensor itself, or a copy whose last axis is contiguous; undefined where there is none.
at::Tensor readable(const OptionalTensor& tensor);

// Views; null for undefined and empty tensors. Tokens are [B, N, H, D] or [B, N, C].
fused::ConstVector vector_view(const at::Tensor& vector);
fused::Vector mutable_vector_view(const at::Tensor& vector);
ConstTensor token_view(const at::Tensor& tensor);
Tensor mutable_token_view(const at::Tensor& tensor);

at::Tensor empty_like_contiguous(const at::Tensor& tensor);
at::Tensor nothing(const at::Tensor& x);  // stands for an output that is not there

}  // namespace mhla::dispatch
