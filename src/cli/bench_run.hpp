// One benchmark: all implementations at one shape, checked first, then timed in turns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/bench_shapes.hpp"
#include "io/json.hpp"

namespace mhla::cli {

struct BenchRow {
  std::string shape, device, dtype, pass, impl, normalizer;
  double ms_median = 0.0, ms_p10 = 0.0, ms_p90 = 0.0;
  double floor_ms = 0.0;        // token tensors (and gradients) moved once at copy speed
  double rel_err = 0.0;         // worst relative RMS against the same formula in double
  std::size_t extra_bytes = 0;  // peak memory beyond inputs, o and the gradients of q, k, v
  double gflops = 0.0;          // arithmetic of the mathematics per second
  double peak_gflops = 0.0;     // large sgemm on the same threads, timed in the same turns

  io::Json json() const;
};

struct BenchSettings {
  std::vector<std::string> impls;
  bool backward = false;
  double min_seconds = 0.5;    // of timing per implementation
  double peer_seconds = 10.0;  // peers that would take longer for one run are left out
  double bandwidth = 0.0;      // bytes per second
};

// `left_out` is told of peers that were not run. Throws an Error where the operator's result is wrong.
std::vector<BenchRow> run_benchmark(const BenchShape& shape, const BenchSettings& settings,
                                    const std::function<void(const std::string&)>& left_out);

const std::vector<std::string>& bench_impls();

}  // namespace mhla::cli
