// Time, memory and the machine's own limits, measured.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace mhla::cli {

double time_of(const std::function<void()>& work);  // seconds

struct Spread {
  double median = 0.0, p10 = 0.0, p90 = 0.0;
};
Spread spread(std::vector<double> samples);

// Keeps memory that is freed for the next allocation of this process, so that no run pays for the system clearing fresh
// pages.
void keep_freed_memory();

// Largest amount of memory that was allocated by torch on the CPU during `work` and not before it, in bytes.
std::size_t peak_allocation(const std::function<void()>& work);

// Bytes read plus bytes written per second when torch copies a buffer larger than the caches.
double copy_bandwidth();

// One multiplication of two large float32 matrices: seconds, and how many operations it is.
double time_matrix_product();
double matrix_product_flops();

// Runs contestants in turns, so that a change of the machine's speed hits all alike, until each has run long enough.
struct Contestant {
  std::function<void()> run;
  std::vector<double> seconds;  // of each run
};
void race(std::vector<Contestant>& contestants, double min_seconds, const std::function<void()>& after_round);

// Slope of log y over log x by least squares.
double fitted_exponent(const std::vector<double>& x, const std::vector<double>& y);

}  // namespace mhla::cli
