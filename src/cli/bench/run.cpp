// Runs one benchmark: check, race, report rows.
#include "cli/bench/run.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cli/bench/candidates.hpp"
#include "cli/failure.hpp"
#include "cli/support/measure.hpp"
#include "torch/tensors.hpp"

namespace mhla::cli::bench {
namespace {

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
      left_out(fmt::format("{} at {}: {}", impl, shape.name, failure_message(error)));
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
