// Calls of the operator library on torch tensors, and error measures.
#include "cli/support/operator_call.hpp"

#include <algorithm>
#include <cmath>

#include "torch/execution.hpp"
#include "torch/tensors.hpp"

namespace mhla::cli {
namespace {

using dispatch::const_view;
using dispatch::mutable_view;
using dispatch::scalar_type;

Inputs inputs(const Tokens& tokens) {
  Inputs in;
  in.q = const_view(tokens.q);
  in.k = const_view(tokens.k);
  in.v = const_view(tokens.v);
  in.mixing = tokens.mixing.const_data_ptr();
  return in;
}

Results allocate(const Problem& problem, const Tokens& tokens, bool backward) {
  Results results;
  results.o =
      torch::empty({problem.batch, problem.partition.tokens(), problem.heads, problem.value_dim}, tokens.q.options());
  if (backward) {
    results.d_q = torch::empty_like(tokens.q);
    results.d_k = torch::empty_like(tokens.k);
    results.d_v = torch::empty_like(tokens.v);
    results.d_mixing = torch::empty_like(tokens.mixing);
  }
  return results;
}

BackwardArgs backward_args(const Tokens& tokens, const torch::Tensor& d_o, const Results& results) {
  BackwardArgs args;
  args.in = inputs(tokens);
  args.o = const_view(results.o);
  args.d_o = const_view(d_o);
  args.d_q = mutable_view(results.d_q);
  args.d_k = mutable_view(results.d_k);
  args.d_v = mutable_view(results.d_v);
  args.d_mixing = results.d_mixing.data_ptr();
  return args;
}

// Seeded anew; on a GPU it is torch's own.
at::Generator generator(const Problem& problem, std::uint64_t seed) {
  if (problem.device == Device::cpu) return at::detail::createCPUGenerator(seed);
  at::Generator shared = at::globalContext().defaultGenerator(torch_device(problem));
  shared.set_current_seed(seed);
  return shared;
}

torch::Tensor normal(std::int64_t tokens, std::int64_t heads, std::int64_t dim, const Problem& problem,
                     at::Generator& generator) {
  return torch::randn({problem.batch, tokens, heads, dim}, generator,
                      torch::TensorOptions(torch::kFloat32).device(torch_device(problem)))
      .to(scalar_type(problem.dtype));
}

}  // namespace

torch::Device torch_device(const Problem& problem) {
  return problem.device == Device::cuda ? torch::Device(torch::kCUDA, 0) : torch::Device(torch::kCPU);
}

Tokens random_tokens(const Problem& problem, const torch::Tensor& mixing, std::uint64_t seed) {
  at::Generator source = generator(problem, seed);
  const std::int64_t n = problem.partition.tokens();
  Tokens tokens;
  tokens.q = normal(n, problem.heads, problem.key_dim, problem, source);
  tokens.k = normal(n, problem.kv_heads, problem.key_dim, problem, source);
  tokens.v = normal(n, problem.kv_heads, problem.value_dim, problem, source);
  tokens.mixing = mixing.to(torch_device(problem), scalar_type(accumulation_type(problem.dtype))).contiguous();
  return tokens;
}

torch::Tensor random_output_gradient(const Problem& problem, std::uint64_t seed) {
  at::Generator source = generator(problem, seed ^ 0x9e3779b9U);
  return normal(problem.partition.tokens(), problem.heads, problem.value_dim, problem, source);
}

Results run_operator(const Plan& plan, const Tokens& tokens, const torch::Tensor& d_o) {
  Results results = allocate(plan.problem(), tokens, d_o.defined());
  const auto kept_bytes = static_cast<std::int64_t>(d_o.defined() ? plan.kept_bytes() : 0);
  const torch::Tensor kept = torch::empty({kept_bytes}, tokens.q.options().dtype(torch::kByte));
  {
    dispatch::TorchExecution execution(tokens.q);
    ForwardArgs args;
    args.in = inputs(tokens);
    args.o = mutable_view(results.o);
    if (kept_bytes > 0) args.kept = kept.mutable_data_ptr();
    args.run = execution.run(plan.forward_workspace());
    forward(plan, args);
  }
  if (d_o.defined()) {
    dispatch::TorchExecution execution(tokens.q);
    BackwardArgs args = backward_args(tokens, d_o, results);
    if (kept_bytes > 0) args.kept = kept.const_data_ptr();
    args.run = execution.run(plan.backward_workspace());
    backward(plan, args);
  }
  return results;
}

Results run_reference(const Problem& problem, const Tokens& tokens, const torch::Tensor& d_o) {
  Problem exact = problem;
  exact.dtype = DType::f64;
  const auto widen = [](const torch::Tensor& tensor) { return tensor.to(torch::kFloat64).contiguous(); };
  const Tokens wide = {widen(tokens.q), widen(tokens.k), widen(tokens.v), widen(tokens.mixing)};
  Results results = allocate(exact, wide, d_o.defined());
  ForwardArgs args;
  args.in = inputs(wide);
  args.o = mutable_view(results.o);
  reference::forward(exact, args);
  if (d_o.defined()) {
    const torch::Tensor wide_d_o = widen(d_o);
    reference::backward(exact, backward_args(wide, wide_d_o, results));
  }
  return results;
}

double relative_rms(const torch::Tensor& a, const torch::Tensor& b) {
  const torch::Tensor exact = b.to(torch::kFloat64);
  const double difference = (a.to(torch::kFloat64) - exact).norm().item<double>();
  const double size = exact.norm().item<double>();
  return difference == 0.0 ? 0.0 : difference / size;
}

double largest_error(const torch::Tensor& a, const torch::Tensor& b) {
  if (a.numel() == 0) return 0.0;
  return (a.to(torch::kFloat64) - b.to(torch::kFloat64)).abs().max().item<double>();
}

double worst_relative_rms(const Results& a, const Results& b) {
  double worst = 0.0;
  const auto compare = [&](const torch::Tensor& x, const torch::Tensor& y) {
    if (!x.defined() || !y.defined()) return;
    const double error = relative_rms(x, y);
    if (!(error <= worst)) worst = error;
  };
  compare(a.o, b.o);
  compare(a.d_q, b.d_q);
  compare(a.d_k, b.d_k);
  compare(a.d_v, b.d_v);
  compare(a.d_mixing, b.d_mixing);
  return worst;
}

double tolerance(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 1e-10;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 8e-3;
  }
  return 0.0;
}

torch::Tensor to_matrix(const std::vector<double>& mixing) {
  const auto blocks = static_cast<std::int64_t>(std::llround(std::sqrt(static_cast<double>(mixing.size()))));
  return torch::tensor(mixing, torch::kFloat64).reshape({blocks, blocks});
}

}  // namespace mhla::cli
