// Runs one benchmark: prepare, check, race, report rows.
#include "cli/bench_run.hpp"

#include <fmt/format.h>

#include <cmath>

#include "cli/measure.hpp"
#include "torch/tensors.hpp"

namespace mhla::cli {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kCheckedQueries = 64;
constexpr std::int64_t kReferenceTokens =
    512;  // up to here the truth is reference.cpp, beyond the composed formula in double

struct Candidate {
  std::string impl;
  double flops = 0.0;
  std::function<Results()> run;
  std::function<double(const Results&)> error;
};

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
  const torch::Tensor visible =
      causal ? torch::ones({checked, n}, torch::kBool).tril(n - checked) : torch::ones({checked, n}, torch::kBool);
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

struct Setting {
  const BenchShape& shape;
  Plan plan;
  Tokens tokens;
  torch::Tensor d_o;
  Results truth;
};

Setting prepare(const BenchShape& shape, bool backward) {
  Setting setting{shape,
                  plan(shape.problem, torch::get_num_threads()),
                  random_tokens(shape.problem, shape.mixing(), kSeed),
                  {},
                  {}};
  if (backward) setting.d_o = random_output_gradient(shape.problem, kSeed);
  setting.truth = shape.problem.partition.tokens() <= kReferenceTokens
                      ? run_reference(shape.problem, setting.tokens, setting.d_o)
                      : composed_truth(shape.problem, setting.tokens, setting.d_o);
  return setting;
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

Candidate softmax_candidate(const Setting& setting) {
  const Problem& p = setting.shape.problem;
  const bool causal = setting.shape.causal();
  const auto n = static_cast<double>(p.partition.tokens());
  const double flops = 4.0 * n * n * static_cast<double>(p.batch * p.heads * p.key_dim) * (causal ? 0.5 : 1.0);
  return {"sdpa", flops * (setting.d_o.defined() ? 3.5 : 1.0),
          [&setting, causal] {
            return with_gradients(setting.tokens, setting.d_o,
                                  [&](const Tokens& leaves) { return softmax_attention(leaves, causal); });
          },
          [&setting, causal](const Results& results) {
            return error_of_peer(setting.tokens, results.o, true, causal, Normalizer::none);
          }};
}

Candidate candidate(const std::string& impl, const Setting& setting) {
  if (impl == "mhla") return operator_candidate(setting);
  if (impl == "composed") return composed_candidate(setting);
  if (impl == "linear") return linear_candidate(setting);
  return softmax_candidate(setting);
}

std::size_t bytes_of(const Results& results) {
  std::size_t bytes = 0;
  for (const torch::Tensor& x : {results.o, results.d_q, results.d_k, results.d_v})
    if (x.defined()) bytes += x.nbytes();
  return bytes;
}

// Forward moves q, k, v, o; backward q, k, v, d_o and d_q, d_k, d_v.
double floor_bytes(const Setting& setting) {
  const auto forward = static_cast<double>(setting.plan.token_bytes());
  if (!setting.d_o.defined()) return forward;
  const Tokens& t = setting.tokens;
  return 2.0 * forward + static_cast<double>(t.q.nbytes() + t.k.nbytes() + t.v.nbytes());
}

}  // namespace

const std::vector<std::string>& bench_impls() {
  static const std::vector<std::string> impls = {"mhla", "composed", "linear", "sdpa"};
  return impls;
}

io::Json BenchRow::json() const {
  return {{"shape", shape},   {"device", device},          {"dtype", dtype},         {"pass", pass},
          {"impl", impl},     {"normalizer", normalizer},  {"ms_median", ms_median}, {"ms_p10", ms_p10},
          {"ms_p90", ms_p90}, {"floor_ms", floor_ms},      {"rel_err", rel_err},     {"extra_bytes", extra_bytes},
          {"gflops", gflops}, {"peak_gflops", peak_gflops}};
}

std::vector<BenchRow> run_benchmark(const BenchShape& shape, const BenchSettings& settings,
                                    const std::function<void(const std::string&)>& left_out) {
  const Setting setting = prepare(shape, settings.backward);
  const DType dtype = shape.problem.dtype;
  const double rate = matrix_product_flops() / std::min(time_matrix_product(), time_matrix_product());
  std::vector<BenchRow> rows;
  std::vector<Contestant> contestants;
  for (const std::string& impl : settings.impls) {
    const Candidate entry = candidate(impl, setting);
    const bool peer = impl == "linear" || impl == "sdpa";
    if (peer && entry.flops / rate > settings.peer_seconds) {
      left_out(fmt::format("{} at {}: about {:.0f} s for one run", impl, shape.name, entry.flops / rate));
      continue;
    }
    BenchRow row;
    row.shape = shape.name;
    row.device = "cpu";
    row.dtype = name(dtype);
    row.pass = settings.backward ? "fwd+bwd" : "fwd";
    row.impl = impl;
    row.normalizer = impl == "sdpa" ? "softmax" : name(shape.problem.options.normalizer);
    row.floor_ms = 1e3 * floor_bytes(setting) / settings.bandwidth;
    row.gflops = entry.flops / 1e9;
    std::size_t results_bytes = 0;
    const std::size_t peak = peak_allocation([&] {
      const Results results = entry.run();
      results_bytes = bytes_of(results);
    });
    row.extra_bytes = peak > results_bytes ? peak - results_bytes : 0;
    row.rel_err = entry.error(entry.run());
    if (impl == "mhla" && !(row.rel_err <= tolerance(dtype)))
      throw Error(fmt::format("mhla at {} ({}, {}): relative RMS {:.2e} exceeds {:.0e}; not timed", shape.name,
                              row.dtype, row.pass, row.rel_err, tolerance(dtype)));
    contestants.push_back({[run = entry.run] { run(); }, {}});
    rows.push_back(row);
  }
  contestants.push_back({[] { time_matrix_product(); }, {}});
  race(contestants, settings.min_seconds, [] {});
  const double peak_gflops = matrix_product_flops() / spread(contestants.back().seconds).median / 1e9;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Spread times = spread(contestants[i].seconds);
    rows[i].ms_median = 1e3 * times.median;
    rows[i].ms_p10 = 1e3 * times.p10;
    rows[i].ms_p90 = 1e3 * times.p90;
    rows[i].gflops /= times.median;
    rows[i].peak_gflops = peak_gflops;
  }
  return rows;
}

}  // namespace mhla::cli
