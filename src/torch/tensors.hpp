// Checks and allocations shared by the real and the meta kernels, and the step from at::Tensor to libmhla's views.
#pragma once

#include <memory>
#include <string_view>

#include "mhla/attention.hpp"
#include "torch/arguments.hpp"

namespace mhla::dispatch {

DType dtype_of(const at::Tensor& tensor, std::string_view argument);
at::ScalarType scalar_type(DType dtype);

// Throws an Error naming the argument unless `tensor` is a dense [B, N, H, D] tensor with contiguous last axis.
void check_token_tensor(const at::Tensor& tensor, std::string_view argument);

// Everything about a call that can be seen without reading data. Works on symbolic sizes too. Returns its options.
Options check_call(const Call& call);
void check_gradients(const Call& call, const Gradients& gradients);

// Outputs with the right shapes, uninitialised.
ForwardResult allocate_forward(const Call& call);
at::Tensor allocate_kept(const Call& call);
BackwardResult allocate_backward(const Call& call, const Gradients& gradients);

ConstTensor const_view(const at::Tensor& tensor);
ConstTensor const_view(const OptionalTensor& tensor);
Tensor mutable_view(const at::Tensor& tensor);

// Methods of custom classes turn unknown exceptions into Python's RuntimeError; this one becomes a ValueError.
template <typename Body>
auto with_value_errors(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    C10_THROW_ERROR(ValueError, error.what());
  }
}

// Threads of torch (torch.set_num_threads).
Parallel torch_parallel();

}  // namespace mhla::dispatch
