// Runs one benchmark: prepare, check, race, report rows.
#include "cli/bench/run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/support/measure.hpp"
#include "torch/tensors.hpp"

namespace mhla::cli::bench {
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

struct Setting {
  const Shape& shape;
  Plan plan;
  Tokens tokens;
  torch::Tensor d_o;
  Results truth;
};

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

Candidate candidate(const std::string& impl, const Setting& setting) {
  if (impl == "mhla") return operator_candidate(setting);
  if (impl == "composed") return composed_candidate(setting);
  if (impl == "linear") return linear_candidate(setting);
  return softmax_candidate(impl, setting);
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

Row empty_row(const Shape& shape, const Settings& settings, const std::string& impl) {
  Row row;
  row.shape = shape.name;
  row.sizes = shape.sizes();
  row.device = name(shape.problem.device);
  row.device_name = settings.device_name;
  row.dtype = name(shape.problem.dtype);
  row.pass = settings.backward ? "fwd+bwd" : "fwd";
  row.impl = impl;
  row.normalizer = row.softmax() ? "softmax" : name(shape.problem.options.normalizer);
  return row;
}

// Runs the candidate twice: for its memory, which also warms it up, and for its error. Returns how it is to be timed.
Contestant check(const Candidate& entry, const Stopwatch& stopwatch, Row& row) {
  std::size_t results_bytes = 0;
  const std::size_t peak = peak_allocation(stopwatch.device().type(), [&] { results_bytes = bytes_of(entry.run()); });
  row.extra_bytes = peak > results_bytes ? peak - results_bytes : 0;
  Results results;
  const Stopwatch::Lap lap = stopwatch.time([&] { results = entry.run(); });
  row.rel_err = entry.error(results);
  return {[run = entry.run] { run(); }, lap.host_seconds};
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

void fill_times(Row& row, const Contestant& contestant, double flops, double peak_gflops) {
  const Spread times = spread(contestant.seconds);
  row.ms_median = 1e3 * times.median;
  row.ms_p10 = 1e3 * times.p10;
  row.ms_p90 = 1e3 * times.p90;
  row.gflops = flops / times.median / 1e9;
  row.peak_gflops = peak_gflops;
  row.host_us = 1e6 * contestant.host_seconds;
}

}  // namespace

const std::vector<std::string>& all_impls() {
  static const std::vector<std::string> impls = {"mhla",       "composed",   "linear",        "sdpa",
                                                 "sdpa-cudnn", "sdpa-flash", "sdpa-efficient"};
  return impls;
}

const std::vector<std::string>& usual_impls(Device device) {
  static const std::vector<std::string> on_cpu = {"mhla", "composed", "linear", "sdpa"};
  static const std::vector<std::string> on_gpu = {"mhla",       "composed",   "linear",
                                                  "sdpa-cudnn", "sdpa-flash", "sdpa-efficient"};
  return device == Device::cuda ? on_gpu : on_cpu;
}

io::Json Row::json() const {
  io::Json row = {
      {"shape", shape},   {"device", device},          {"dtype", dtype},         {"pass", pass},
      {"impl", impl},     {"normalizer", normalizer},  {"ms_median", ms_median}, {"ms_p10", ms_p10},
      {"ms_p90", ms_p90}, {"floor_ms", floor_ms},      {"rel_err", rel_err},     {"extra_bytes", extra_bytes},
      {"gflops", gflops}, {"peak_gflops", peak_gflops}};
  if (device != "cpu") {
    row["device_name"] = device_name;
    row["host_us"] = host_us;
  }
  return row;
}

std::vector<Row> run_benchmark(const Shape& shape, const Settings& settings,
                               const std::function<void(const std::string&)>& left_out) {
  const Setting setting = prepare(shape, settings.backward);
  const Stopwatch stopwatch(torch_device(shape.problem));
  const DType dtype = shape.problem.dtype;
  MatrixProduct product(stopwatch.device(), dispatch::scalar_type(dtype));
  product();
  const double rate = product.flops() / stopwatch.time(product).seconds;
  std::vector<Row> rows;
  std::vector<double> flops;
  std::vector<Contestant> contestants;
  for (const std::string& impl : settings.impls) {
    if (impl == "sdpa-efficient" && std::ranges::any_of(rows, &Row::softmax)) continue;
    const Candidate entry = candidate(impl, setting);
    Row row = empty_row(shape, settings, impl);
    if ((impl == "linear" || row.softmax()) && entry.flops / rate > settings.peer_seconds) {
      left_out(fmt::format("{} at {}: at least {:.1f} s for one run", impl, shape.name, entry.flops / rate));
      continue;
    }
    row.floor_ms = 1e3 * floor_bytes(setting) / settings.bandwidth;
    try {
      contestants.push_back(check(entry, stopwatch, row));
    } catch (const std::exception& error) {
      if (impl == "mhla") throw;
      left_out(fmt::format("{} at {}: {}", impl, shape.name, first_line(error)));
      continue;
    }
    if (impl == "mhla" && !(row.rel_err <= tolerance(dtype)))
      throw Error(fmt::format("mhla at {} ({}, {}): relative RMS {:.2e} exceeds {:.0e}; not timed", shape.name,
                              row.dtype, row.pass, row.rel_err, tolerance(dtype)));
    rows.push_back(row);
    flops.push_back(entry.flops);
  }
  contestants.push_back({product});
  race(contestants, stopwatch, settings.min_seconds);
  const double peak_gflops = product.flops() / spread(contestants.back().seconds).median / 1e9;
  for (std::size_t i = 0; i < rows.size(); ++i) fill_times(rows[i], contestants[i], flops[i], peak_gflops);
  return rows;
}

}  // namespace mhla::cli::bench
