// The groups of the self-check and how each is run.
#include "cli/selftest/checks.hpp"

#include <fmt/format.h>

#include <array>

#include "cli/support/operator_call.hpp"
#include "mhla/mixing.hpp"
#include "mhla/state.hpp"
#include "torch/tensors.hpp"

namespace mhla::cli {
namespace {

constexpr std::array kTypes = {DType::f64, DType::f32, DType::bf16, DType::f16};
constexpr std::array kMaps = {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp,
                              FeatureMap::squared_relu};
constexpr std::uint64_t kCheckSeed = 11;
constexpr std::int64_t kTokens = 45;
constexpr std::int64_t kCheckBlock = 12;

struct Group {
  std::string what;
  Masking masking;
  Normalizer normalizer;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {"bidirectional, no normalizer", Masking::none, Normalizer::none},
      {"bidirectional, paper normalizer", Masking::none, Normalizer::paper},
      {"bidirectional, normalizer authors", Masking::none, Normalizer::authors},
      {"block-causal, no normalizer", Masking::block_causal, Normalizer::none},
      {"block-causal, paper normalizer", Masking::block_causal, Normalizer::paper},
      {"token-causal, no normalizer", Masking::token_causal, Normalizer::none},
      {"token-causal, paper normalizer", Masking::token_causal, Normalizer::paper},
  };
  return all;
}

std::vector<Partition> partitions(Masking masking) {
  if (masking != Masking::none) return {Partition::line(kTokens, kCheckBlock)};
  return {Partition::line(kTokens, kCheckBlock), Partition::grid({6, 7}, {3, 2}),
          Partition::grid({3, 4, 5}, {2, 2, 2})};
}

Problem make_problem(const Group& group, const Partition& partition, DType dtype, FeatureMap map) {
  Problem problem;
  problem.dtype = dtype;
  problem.heads = 2;
  problem.kv_heads = partition.is_line() ? 1 : 2;
  problem.key_dim = 16;
  problem.value_dim = 12;
  problem.partition = partition;
  problem.mixing_blocks = partition.blocks();
  problem.options = {map, group.normalizer, group.masking, Algorithm::automatic, 0.2, 1e-6, 1e-6};
  return problem;
}

Tokens make_tokens(const Problem& problem) {
  const MixingInit init = problem.options.masking == Masking::none ? MixingInit::paper : MixingInit::running_mean;
  Tokens tokens = random_tokens(problem, to_matrix(mixing_init(problem.partition, init)), kCheckSeed);
  tokens.q.mul_(0.5);
  tokens.k.mul_(0.5);
  return tokens;
}

// NaN counts as the worst.
void keep_worst(double& worst, double error) {
  if (!(error <= worst)) worst = error;
}

void check_call(const Problem& base, CheckRow& row) {
  const Tokens tokens = make_tokens(base);
  const torch::Tensor d_o = random_output_gradient(base, kCheckSeed);
  const Results truth = run_reference(base, tokens, d_o);
  for (const Algorithm algorithm : {Algorithm::summary, Algorithm::dense}) {
    if (algorithm == Algorithm::dense && base.options.normalizer == Normalizer::authors) continue;  // has no dense form
    Problem problem = base;
    problem.options.algorithm = algorithm;
    const Results results = run_operator(plan(problem, torch::get_num_threads()), tokens, d_o);
    keep_worst(row.forward_error, relative_rms(results.o, truth.o));
    Results gradients = results;
    gradients.o = truth.o;
    keep_worst(*row.gradient_error, worst_relative_rms(gradients, truth));
    ++row.calls;
  }
}

CheckRow check_group(const Group& group, DType dtype) {
  CheckRow row{group.what, std::string(name(dtype)), 0, 0.0, 0.0, tolerance(dtype)};
  for (const Partition& partition : partitions(group.masking))
    for (const FeatureMap map : kMaps) {
      // Without positive features a denominator may come arbitrarily close to zero, where no precision is enough.
      if (map == FeatureMap::identity && group.normalizer != Normalizer::none) continue;
      check_call(make_problem(group, partition, dtype, map), row);
    }
  return row;
}

// A stream cut into a prefill and single steps against the one call.
CheckRow check_stream(DType dtype) {
  const Group group = groups()[5];
  const Problem problem = make_problem(group, Partition::line(kTokens, kCheckBlock), dtype, FeatureMap::relu);
  const Tokens tokens = make_tokens(problem);
  const Results truth = run_reference(problem, tokens);
  StateConfig config;
  config.dtype = dtype;
  config.heads = problem.heads;
  config.kv_heads = problem.kv_heads;
  config.key_dim = problem.key_dim;
  config.value_dim = problem.value_dim;
  config.block_size = kCheckBlock;
  config.mixing_blocks = problem.mixing_blocks;
  config.options = problem.options;
  State state(config, tokens.mixing.const_data_ptr());
  torch::Tensor o = torch::empty({1, kTokens, problem.heads, problem.value_dim}, tokens.q.options());
  constexpr std::int64_t kPrefill = 29;
  const auto from = [](const torch::Tensor& x, std::int64_t token) { return dispatch::const_view(x.slice(1, token)); };
  state.prefill(kPrefill, from(tokens.q, 0), from(tokens.k, 0), from(tokens.v, 0), dispatch::mutable_view(o));
  for (std::int64_t t = kPrefill; t < kTokens; ++t)
    state.step(from(tokens.q, t), from(tokens.k, t), from(tokens.v, t), dispatch::mutable_view(o.slice(1, t)));
  return {"streaming: prefill, then token by token",
          std::string(name(dtype)),
          1,
          relative_rms(o, truth.o),
          std::nullopt,
          tolerance(dtype)};
}

}  // namespace

bool CheckRow::good() const { return forward_error <= tolerance && (!gradient_error || *gradient_error <= tolerance); }

std::vector<CheckRow> run_checks(const std::function<void(double)>& step) {
  std::vector<CheckRow> rows;
  const double share = 1.0 / static_cast<double>((groups().size() + 1) * kTypes.size());
  for (const Group& group : groups())
    for (const DType dtype : kTypes) {
      rows.push_back(check_group(group, dtype));
      step(share);
    }
  for (const DType dtype : kTypes) {
    rows.push_back(check_stream(dtype));
    step(share);
  }
  return rows;
}

std::vector<std::string> check_header() { return {"check", "dtype", "calls", "o", "gradients", "tolerance", ""}; }

std::vector<std::string> check_cells(const CheckRow& row) {
  return {row.what,
          row.dtype,
          std::to_string(row.calls),
          fmt::format("{:.1e}", row.forward_error),
          row.gradient_error ? fmt::format("{:.1e}", *row.gradient_error) : "-",
          fmt::format("{:.0e}", row.tolerance),
          row.good() ? "ok" : "FAILED"};
}

}  // namespace mhla::cli
