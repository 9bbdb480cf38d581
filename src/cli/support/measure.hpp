// Time, memory and the machine's own limits, measured.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "cli/support/stopwatch.hpp"

namespace mhla::cli {

double time_of(const std::function<void()>& work);  // seconds

struct Spread {
  double median = 0.0, p10 = 0.0, p90 = 0.0;
};
Spread spread(std::vector<double> samples);

// Keeps memory that is freed for the next allocation of this process, so that no run pays for the system clearing fresh
// pages.
void keep_freed_memory();

// Largest amount of memory that was allocated by torch on the device during `work` and not before it, in bytes.
std::size_t peak_allocation(torch::DeviceType device, const std::function<void()>& work);

// Bytes read plus bytes written per second when torch copies a buffer larger than the caches.
double copy_bandwidth(torch::Device device = torch::kCPU);

// A multiplication of two large square matrices by torch, the yardstick of arithmetic: float32 on the CPU, the given
// type on a GPU.
class MatrixProduct {
 public:
  MatrixProduct(torch::Device device, torch::ScalarType dtype);
  void operator()() { torch::mm_out(c_, a_, b_); }
  double flops() const;

 private:
  torch::Tensor a_, b_, c_;
};

// Runs contestants in turns, so that a change of the machine's speed hits all alike, until each has run long enough.
struct Contestant {
  std::function<void()> run;
  double host_seconds = 0.0;      // of the latest run
  std::vector<double> seconds{};  // of each run
};
void race(std::vector<Contestant>& contestants, const Stopwatch& stopwatch, double min_seconds);

// Slope of log y over log x by least squares.
double fitted_exponent(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace mhla::cli
