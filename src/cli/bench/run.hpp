// One benchmark: all implementations at one shape, checked first, then timed in turns.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cli/bench/shapes.hpp"
#include "io/json.hpp"

namespace mhla::cli::bench {

struct Row {
  std::string shape, device, dtype, pass, impl, normalizer;
  std::string sizes;  // "(B, H, N, D, M)"
  double ms_median = 0.0, ms_p10 = 0.0, ms_p90 = 0.0;
  double floor_ms = 0.0;        // token tensors (and gradients) moved once at copy speed
  double rel_err = 0.0;         // worst relative RMS against the same formula in double
  std::size_t extra_bytes = 0;  // peak memory beyond inputs, o and the gradients of q, k, v
  double gflops = 0.0;          // arithmetic of the mathematics per second
  double peak_gflops = 0.0;     // large matrix product on the same threads or GPU, timed in the same turns
  std::string device_name;      // of a GPU
  double host_us = 0.0;         // on a GPU: until the host had enqueued one run

  bool softmax() const { return impl.starts_with("sdpa"); }
  io::Json json() const;
};

struct Settings {
  std::vector<std::string> impls;
  bool backward = false;
  double min_seconds = 0.5;    // of timing per implementation
  double peer_seconds = 10.0;  // peers that would take longer for one run are left out
  double bandwidth = 0.0;      // bytes per second
  std::string device_name;     // of a GPU
};

// On the device of the shape's problem. `left_out` is told of peers that were not run. Throws an Error where the
// operator's result is wrong.
std::vector<Row> run_benchmark(const Shape& shape, const Settings& settings,
                               const std::function<void(const std::string&)>& left_out);

// Those run unless told otherwise. sdpa-efficient runs only where no other softmax did.
const std::vector<std::string>& usual_impls(Device device = Device::cpu);
const std::vector<std::string>& all_impls();

}  // namespace mhla::cli::bench
