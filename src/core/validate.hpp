// Checks of everything a caller hands in; each throws an Error that names the argument.
#pragma once

#include "mhla/attention.hpp"
#include "mhla/state.hpp"

namespace mhla {

void validate(const Problem& problem);
void validate(const Problem& problem, const ForwardArgs& args);
void validate(const Problem& problem, const BackwardArgs& args);
void validate(const Problem& problem, const Execution& run, std::size_t workspace_needed);
void validate(const StateConfig& config);
void validate(const StateConfig& config, std::int64_t tokens, const ConstTensor& q, const ConstTensor& k,
              const ConstTensor& v, const Tensor& o);  // of a prefill, a step or a decoding step
void validate_kept(const Problem& problem, const void* kept, std::size_t kept_bytes);

}  // namespace mhla
