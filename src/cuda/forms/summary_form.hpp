// The summary form: S by block, S~ by mixing, readout; and backward through the same stages.
#pragma once

#include <cstddef>

#include "mhla/attention.hpp"

namespace mhla::cuda::summary_form {

std::size_t forward_workspace(const Problem& problem);
std::size_t backward_workspace(const Problem& problem);
std::size_t kept_bytes(const Problem& problem);  // what forward can leave for backward
void forward(const Problem& problem, const ForwardArgs& args);
void backward(const Problem& problem, const BackwardArgs& args);

}  // namespace mhla::cuda::summary_form
