// A call that is checked and planned once for both passes of a training step.
#pragma once

#include "torch/arguments.hpp"
#include "torch/execution.hpp"

namespace mhla::dispatch {

// Checks everything about the call.
Plan plan_call(const AttentionCall& call, const TorchExecution& execution);

// Whether the plan of an earlier call holds for this one: the backward pass gets the tensors that a hook of autograd's
// user gives back, perhaps with other threads.
bool is_planned(const AttentionCall& call, const Plan& plan, const TorchExecution& execution);

// `kept` may be undefined or empty, or has Plan::kept_bytes().
ForwardResult run_forward(const AttentionCall& call, const Plan& plan, TorchExecution& execution,
                          const at::Tensor& kept);
BackwardResult run_backward(const AttentionCall& call, const Plan& plan, TorchExecution& execution,
                            const Gradients& gradients);

}  // namespace mhla::dispatch
