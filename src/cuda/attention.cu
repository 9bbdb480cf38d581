#include "cuda/attention.hpp"

#include "cuda/summary_form.hpp"

namespace mhla::cuda {

Algorithm cheaper(const Problem&) { return Algorithm::summary; }

std::size_t forward_workspace(const Problem& problem, Algorithm) { return summary_form::forward_workspace(problem); }
std::size_t backward_workspace(const Problem& problem, Algorithm) { return summary_form::backward_workspace(problem); }
void forward(const Problem& problem, Algorithm, const ForwardArgs& args) { summary_form::forward(problem, args); }
void backward(const Problem& problem, Algorithm, const BackwardArgs& args) { summary_form::backward(problem, args); }

}  // namespace mhla::cuda
