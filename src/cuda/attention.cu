// The two forms of the operator, and which is cheaper.
#include "cuda/attention.hpp"
#include "cuda/forms/dense_form.hpp"
#include "cuda/forms/summary_form.hpp"

namespace mhla::cuda {

// Few tokens in many blocks: the pairs of a head are fewer than the elements of its summaries. Very few tokens in
// all: fewer launches.
Algorithm cheaper(const Problem& p) {
  const auto tokens = static_cast<double>(p.partition.tokens());
  const auto blocks = static_cast<double>(p.partition.blocks());
  const auto dims = static_cast<double>(p.key_dim * p.value_dim);
  constexpr std::int64_t kFewTokens = 128, kFewHeads = 256;
  const bool few = p.partition.tokens() <= kFewTokens && p.batch * p.heads <= kFewHeads;
  return few || tokens * tokens < 2 * blocks * dims ? Algorithm::dense : Algorithm::summary;
}

std::size_t forward_workspace(const Problem& problem, Algorithm algorithm) {
  return algorithm == Algorithm::dense ? dense_form::forward_workspace(problem)
                                       : summary_form::forward_workspace(problem);
}
std::size_t backward_workspace(const Problem& problem, Algorithm algorithm) {
  return algorithm == Algorithm::dense ? dense_form::backward_workspace(problem)
                                       : summary_form::backward_workspace(problem);
}
std::size_t kept_bytes(const Problem& problem) { return summary_form::kept_bytes(problem); }
void forward(const Problem& problem, Algorithm algorithm, const ForwardArgs& args) {
  algorithm == Algorithm::dense ? dense_form::forward(problem, args) : summary_form::forward(problem, args);
}
void backward(const Problem& problem, Algorithm algorithm, const BackwardArgs& args) {
  algorithm == Algorithm::dense ? dense_form::backward(problem, args) : summary_form::backward(problem, args);
}

}  // namespace mhla::cuda
