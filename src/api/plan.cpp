// plan(): validation, the choice of algorithm, and what it costs.
#include <algorithm>
#include <cmath>

#include "core/layout.hpp"
#include "core/sizes.hpp"
#include "core/validate.hpp"
#include "cpu/algorithms.hpp"
#include "cuda/attention.hpp"
#include "mhla/attention.hpp"

namespace mhla {
namespace {

// Multiply-adds per head, summed over sequences, as coefficients of the products that make them up.
struct Work {
  double summary_tokens = 0;  // token x (Dk Dv) products: one for S, one for the readout
  double block_pairs = 0;     // (Dk Dv) products of the mixing
  double inner_pairs = 0;     // token pairs inside token-causal chunks
  double token_pairs = 0;     // visible token pairs: the dense form
};

constexpr double kChunk = 64;  // tokens a token-causal block is walked by

Work work_of(const Problem& p) {
  const Layout layout(p);
  Work work;
  const double alike = layout.different_sequences() < layout.sequences() ? static_cast<double>(layout.sequences()) : 1;
  for (std::int64_t n = 0; n < layout.different_sequences(); ++n) {
    const Sequence s = layout.sequence(n);
    const auto tokens = static_cast<double>(s.tokens);
    const auto blocks = static_cast<double>(s.blocks);
    const auto before = static_cast<double>(layout.first_block());
    const double chunk = std::min({kChunk, static_cast<double>(layout.capacity()), std::max(tokens, 1.0)});
    work.summary_tokens += alike * 2 * tokens;
    switch (p.options.masking) {
      case Masking::none:
        work.block_pairs += alike * blocks * blocks;
        work.token_pairs += alike * tokens * tokens;
        break;
      case Masking::block_causal:
        work.block_pairs += alike * blocks * (before + (blocks + 1) / 2);
        work.token_pairs += alike * tokens * (tokens + static_cast<double>(layout.capacity())) / 2;
        break;
      case Masking::token_causal:
        work.block_pairs += alike * blocks * (before + (blocks - 1) / 2);
        work.inner_pairs += alike * tokens * (chunk + 1) / 2;
        work.token_pairs += alike * tokens * (tokens + 1) / 2;
        break;
    }
  }
  return work;
}

// The dense form has no summaries to start from and no place for a denominator of its own.
bool dense_form_exists(const Problem& p) {
  return p.initial_tokens == 0 && !p.separate_denominator && p.options.normalizer != Normalizer::authors;
}

// Relative times of the two forms on a CPU. The dense form computes masked tiles in full and reads its keys transposed;
// its products run on longer rows than the mixing of small summaries, which is worth the factor below (measured,
// bench/).
Algorithm cheaper_on_cpu(const Problem& p) {
  const Work work = work_of(p);
  const auto dk = static_cast<double>(p.key_dim);
  const auto dv = static_cast<double>(p.value_dim);
  const double summary = (work.summary_tokens + work.block_pairs) * dk * dv + work.inner_pairs * (dk + dv);
  const double dense = work.token_pairs * (dk + dv);
  constexpr double kDenseAdvantage = 0.8;
  return dense * kDenseAdvantage < summary ? Algorithm::dense : Algorithm::summary;
}

// A causal caller may want the final state, which the dense form does not make.
Algorithm choose(const Problem& p) {
  if (!dense_form_exists(p) || p.options.masking != Masking::none) return Algorithm::summary;
  return p.device == Device::cuda ? cuda::cheaper(p) : cheaper_on_cpu(p);
}

std::size_t workspace(const Problem& p, Algorithm algorithm, int threads, bool is_backward) {
  const auto size = [&]<typename T>() {
    if (algorithm == Algorithm::dense)
      return is_backward ? cpu::dense::backward_workspace<T>(p, threads) : cpu::dense::forward_workspace<T>(p, threads);
    return is_backward ? cpu::summary::backward_workspace<T>(p, threads)
                       : cpu::summary::forward_workspace<T>(p, threads);
  };
  return accumulation_type(p.dtype) == DType::f64 ? size.template operator()<double>()
                                                  : size.template operator()<float>();
}

// What forward could leave for backward, where that is not much more than the keys and values it was made from: to
// read it takes as long as to make it again. Sums and padding go beside them: up to an eighth. A GPU, which would write
// and read it once more to make it again, may keep three times as much.
std::size_t kept_bytes(const Problem& p, Algorithm algorithm) {
  if (algorithm == Algorithm::dense) return 0;
  std::size_t bytes = 0;
  if (p.device == Device::cuda)
    bytes = cuda::kept_bytes(p);
  else if (accumulation_type(p.dtype) == DType::f64)
    bytes = cpu::summary::kept_bytes<double>(p);
  else
    bytes = cpu::summary::kept_bytes<float>(p);
  const std::int64_t keys_and_values = p.batch * p.partition.tokens() * p.kv_heads * (p.key_dim + p.value_dim);
  const std::size_t most = static_cast<std::size_t>(keys_and_values) * element_size(p.dtype) / 8 * 9;
  return bytes <= (p.device == Device::cuda ? 3 : 1) * most ? bytes : 0;
}

}  // namespace

double Plan::forward_flops() const {
  const Work work = work_of(problem_);
  const auto dk = static_cast<double>(problem_.key_dim);
  const auto dv = static_cast<double>(problem_.value_dim);
  const double per_head = algorithm_ == Algorithm::dense
                              ? work.token_pairs * (dk + dv)
                              : (work.summary_tokens + work.block_pairs) * dk * dv + work.inner_pairs * (dk + dv);
  return 2 * per_head * static_cast<double>(problem_.heads);
}

double Plan::backward_flops() const { return 2 * forward_flops(); }

std::size_t Plan::token_bytes() const {
  const auto& p = problem_;
  const auto tokens = static_cast<std::size_t>(p.batch * p.partition.tokens());
  const auto elements = tokens * static_cast<std::size_t>((p.heads + p.kv_heads) * (p.key_dim + p.value_dim));
  return elements * element_size(p.dtype);
}

Plan plan(const Problem& problem, int threads) {
  validate(problem);
  require_size("threads", threads, 0, kMostThreads);  // 0: the default
  if (problem.options.algorithm == Algorithm::dense && !dense_form_exists(problem))
    throw Error(
        "algorithm is dense, which has no form for initial_tokens, q_den and k_den or normalizer authors; use "
        "summary or "
        "automatic");
  Plan plan;
  plan.problem_ = problem;
  plan.algorithm_ = problem.options.algorithm == Algorithm::automatic ? choose(problem) : problem.options.algorithm;
  if (problem.device == Device::cuda) {
    plan.forward_workspace_ = cuda::forward_workspace(problem, plan.algorithm_);
    plan.backward_workspace_ = cuda::backward_workspace(problem, plan.algorithm_);
  } else {
    plan.threads_ = threads == 0 ? default_parallel().threads : threads;
    plan.forward_workspace_ = workspace(problem, plan.algorithm_, plan.threads_, false);
    plan.backward_workspace_ = workspace(problem, plan.algorithm_, plan.threads_, true);
  }
  plan.kept_bytes_ = kept_bytes(problem, plan.algorithm_);
  return plan;
}

namespace {

void refuse_state(const ForwardArgs& args) {
  if (args.final_state.S != nullptr) throw Error("final_state is given; algorithm dense makes none, use summary");
}
void refuse_state(const BackwardArgs& args) {
  if (args.d_final.S != nullptr) throw Error("d_final is given; algorithm dense makes no state, use summary");
}

template <typename Args>
void check(const Plan& plan, const Args& args, std::size_t workspace_needed) {
  validate(plan.problem(), args);
  if (plan.algorithm() == Algorithm::dense) refuse_state(args);
  validate(plan.problem(), args.run, workspace_needed);
  validate_kept(plan.problem(), args.kept, plan.kept_bytes());
}

// Calls run.operator()<T>(parallel) with the arithmetic type of the problem.
template <typename Run>
void run_on_cpu(const Plan& plan, const Execution& execution, Run&& run) {
  const Parallel& parallel = execution.parallel != nullptr ? *execution.parallel : default_parallel();
  if (accumulation_type(plan.problem().dtype) == DType::f64)
    run.template operator()<double>(parallel);
  else
    run.template operator()<float>(parallel);
}

}  // namespace

void forward(const Plan& plan, const ForwardArgs& args) {
  const Problem& p = plan.problem();
  check(plan, args, plan.forward_workspace());
  if (p.device == Device::cuda) return cuda::forward(p, plan.algorithm(), args);
  run_on_cpu(plan, args.run, [&]<typename T>(const Parallel& parallel) {
    if (plan.algorithm() == Algorithm::dense)
      cpu::dense::forward<T>(p, args, parallel, plan.threads());
    else
      cpu::summary::forward<T>(p, args, parallel, plan.threads());
  });
}

void backward(const Plan& plan, const BackwardArgs& args) {
  const Problem& p = plan.problem();
  check(plan, args, plan.backward_workspace());
  if (p.device == Device::cuda) return cuda::backward(p, plan.algorithm(), args);
  run_on_cpu(plan, args.run, [&]<typename T>(const Parallel& parallel) {
    if (plan.algorithm() == Algorithm::dense)
      cpu::dense::backward<T>(p, args, parallel, plan.threads());
    else
      cpu::summary::backward<T>(p, args, parallel, plan.threads());
  });
}

}  // namespace mhla
