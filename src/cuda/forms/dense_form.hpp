// The dense form: pairs of tokens, quadratic in them. For calls without states, separate denominators or the authors'
// normaliser.
#pragma once

#include <cstddef>

#include "mhla/attention.hpp"

namespace mhla::cuda::dense_form {

std::size_t forward_workspace(const Problem& problem);
std::size_t backward_workspace(const Problem& problem);
void forward(const Problem& problem, const ForwardArgs& args);
void backward(const Problem& problem, const BackwardArgs& args);

}  // namespace mhla::cuda::dense_form
