// The implementations by name.
#include "cli/bench/candidates.hpp"

#include <algorithm>
#include <cmath>

namespace mhla::cli::bench {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kCheckedQueries = 64;
constexpr std::int64_t kReferenceTokens =
    512;  // up to here the truth is reference.cpp, beyond the composed formula in double

Results with_gradients(const Tokens& tokens, const torch::Tensor& d_o,
                       const std::function<torch::Tensor(const Tokens&)>& attend) {
  Results results;
  if (!d_o.defined()) {
    const torch::NoGradGuard no_gradients;
    results.o = attend(tokens);
    return results;
  }
  const auto leaf = [](const torch::Tensor& x) { return x.detach().requires_grad_(true); };
  const Tokens leaves = {leaf(tokens.q), leaf(tokens.k), leaf(tokens.v), leaf(tokens.mixing)};
  const torch::Tensor o = attend(leaves);
  auto gradients = torch::autograd::grad({o}, {leaves.q, leaves.k, leaves.v, leaves.mixing},
                                         {d_o.narrow(3, 0, o.size(3))}, std::nullopt, false, true);
  results = {o.detach(), gradients[0], gradients[1], gradients[2], gradients[3]};
  return results;
}

// The last queries of one head by the definition, in double.
double error_of_peer(const Tokens& tokens, const torch::Tensor& o, bool softmax, bool causal, Normalizer normalizer) {
  const torch::NoGradGuard no_gradients;
  const std::int64_t n = tokens.q.size(1);
  const std::int64_t checked = std::min(n, kCheckedQueries);
  const auto head = [](const torch::Tensor& x) { return x.select(0, 0).select(1, 0).to(torch::kFloat64); };
  const torch::Tensor q = head(tokens.q).slice(0, n - checked);
  const torch::Tensor k = head(tokens.k);
  torch::Tensor visible = torch::ones({checked, n}, q.options().dtype(torch::kBool));
  if (causal) visible = visible.tril(n - checked);
  torch::Tensor weights;
  if (softmax) {
    const torch::Tensor scores = torch::matmul(q, k.t()) / std::sqrt(static_cast<double>(q.size(1)));
    weights = torch::softmax(scores.masked_fill(~visible, -INFINITY), 1);
  } else {
    weights = torch::matmul(q.relu(), k.relu().t()) * visible;
    if (normalizer != Normalizer::none && !causal) weights = weights / (weights.sum(1, true) + 1e-6);
  }
  const torch::Tensor expected = torch::matmul(weights, head(tokens.v).slice(1, 0, o.size(3)));
  return relative_rms(head(o).slice(0, n - checked), expected);
}

Candidate operator_candidate(const Setting& setting) {
  return {"mhla", setting.plan.forward_flops() + (setting.d_o.defined() ? setting.plan.backward_flops() : 0.0),
          [&setting] { return run_operator(setting.plan, setting.tokens, setting.d_o); },
          [&setting](const Results& results) { return worst_relative_rms(results, setting.truth); }};
}

Candidate composed_candidate(const Setting& setting) {
  const Partition& partition = setting.shape.problem.partition;
  const bool reorder = setting.shape.order == TokenOrder::block && !partition.is_line();
  Tokens tokens = setting.tokens;
  torch::Tensor d_o = setting.d_o;
  if (reorder) {
    const auto ordered = [&](const torch::Tensor& x) {
      return x.defined() ? to_block_order(x, partition).contiguous() : x;
    };
    tokens = {ordered(tokens.q), ordered(tokens.k), ordered(tokens.v), tokens.mixing};
    d_o = ordered(d_o);
  }
  return {"composed", operator_candidate(setting).flops,
          [&setting, tokens, d_o] {
            return with_gradients(tokens, d_o, [&](const Tokens& leaves) {
              return composed_mhla(setting.shape.problem, leaves, setting.shape.order);
            });
          },
          [&setting, &partition, reorder](const Results& results) {
            const auto raster = [&](const torch::Tensor& x) {
              return reorder && x.defined() ? from_block_order(x, partition) : x;
            };
            return worst_relative_rms(
                {raster(results.o), raster(results.d_q), raster(results.d_k), raster(results.d_v), results.d_mixing},
                setting.truth);
          }};
}

Candidate linear_candidate(const Setting& setting) {
  const Problem& p = setting.shape.problem;
  const bool causal = setting.shape.causal();
  const std::int64_t chunk = p.partition.block_capacity();
  const auto rows = static_cast<double>(p.batch * p.heads * p.partition.tokens());
  double flops = 4.0 * rows * static_cast<double>(p.key_dim * p.value_dim);
  if (causal) flops += rows * static_cast<double>(chunk * (p.key_dim + p.value_dim));
  return {"linear", flops * (setting.d_o.defined() ? 3.0 : 1.0),
          [&setting, causal, chunk] {
            return with_gradients(setting.tokens, setting.d_o, [&](const Tokens& leaves) {
              return linear_attention(leaves, setting.shape.problem.options.normalizer, causal, chunk);
            });
          },
          [&setting, causal](const Results& results) {
            return error_of_peer(setting.tokens, results.o, false, causal, setting.shape.problem.options.normalizer);
          }};
}

SoftmaxKernel softmax_kernel(const std::string& impl) {
  if (impl == "sdpa-cudnn") return SoftmaxKernel::cudnn;
  if (impl == "sdpa-flash") return SoftmaxKernel::flash;
  if (impl == "sdpa-efficient") return SoftmaxKernel::efficient;
  return SoftmaxKernel::automatic;
}

Candidate softmax_candidate(const std::string& impl, const Setting& setting) {
  const Problem& p = setting.shape.problem;
  const bool causal = setting.shape.causal();
  const SoftmaxKernel kernel = softmax_kernel(impl);
  const auto n = static_cast<double>(p.partition.tokens());
  const double flops = 4.0 * n * n * static_cast<double>(p.batch * p.heads * p.key_dim) * (causal ? 0.5 : 1.0);
  const auto as_wide_as_keys = [&](const torch::Tensor& x) {
    return x.defined() ? x.slice(3, 0, p.key_dim).contiguous() : x;
  };
  const Tokens tokens = {setting.tokens.q, setting.tokens.k, as_wide_as_keys(setting.tokens.v), setting.tokens.mixing};
  return {impl, flops * (setting.d_o.defined() ? 3.5 : 1.0),
          [tokens, d_o = as_wide_as_keys(setting.d_o), causal, kernel] {
            return with_gradients(tokens, d_o,
                                  [&](const Tokens& leaves) { return softmax_attention(leaves, causal, kernel); });
          },
          [tokens, causal](const Results& results) {
            return error_of_peer(tokens, results.o, true, causal, Normalizer::none);
          }};
}

}  // namespace

Setting prepare(const Shape& shape, bool backward) {
  Setting setting{shape,
                  plan(shape.problem, torch::get_num_threads()),
                  random_tokens(shape.problem, shape.mixing(), kSeed),
                  {},
                  {}};
  if (backward) setting.d_o = random_output_gradient(shape.problem, kSeed);
  setting.truth = shape.problem.device == Device::cpu && shape.problem.partition.tokens() <= kReferenceTokens
                      ? run_reference(shape.problem, setting.tokens, setting.d_o)
                      : composed_truth(shape.problem, setting.tokens, setting.d_o);
  return setting;
}

Candidate candidate(const std::string& impl, const Setting& setting) {
  if (impl == "mhla") return operator_candidate(setting);
  if (impl == "composed") return composed_candidate(setting);
  if (impl == "linear") return linear_candidate(setting);
  return softmax_candidate(impl, setting);
}

}  // namespace mhla::cli::bench
