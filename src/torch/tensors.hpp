// Checks of a call and allocations, shared by the real and the meta kernels, and the step from at::Tensor to libmhla's
// views.
#pragma once

#include "mhla/attention.hpp"
#include "torch/arguments.hpp"
#include "torch/checks.hpp"

namespace mhla::dispatch {

// Everything about a call that can be seen without reading data. Works on symbolic sizes too. Returns its options.
Options check_call(const AttentionCall& call);
void check_gradients(const AttentionCall& call, const Gradients& gradients);

// Outputs with the right shapes, uninitialised.
ForwardResult allocate_forward(const AttentionCall& call);
at::Tensor allocate_kept(const AttentionCall& call, const Keeping& keeping);
BackwardResult allocate_backward(const AttentionCall& call, const Gradients& gradients);

ConstTensor const_view(const at::Tensor& tensor);
ConstTensor const_view(const OptionalTensor& tensor);
Tensor mutable_view(const at::Tensor& tensor);

// Offsets of packed sequences, read on the host.
std::vector<std::int64_t> offsets_of(const at::Tensor& cu_seqlens);

// Threads of torch (torch.set_num_threads).
Parallel torch_parallel();

}  // namespace mhla::dispatch
