// The quick numeric self-check: fast kernels against the double reference over the operator's options.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace mhla::cli {

// The worst case of a group of calls.
struct CheckRow {
  std::string what;  // "bidirectional, normalizer paper"
  std::string dtype;
  int calls = 0;
  double forward_error = 0.0;            // relative RMS of o
  std::optional<double> gradient_error;  // relative RMS of the worst of d_q, d_k, d_v, d_mixing, where there are any
  double tolerance = 0.0;

  bool good() const;
};

// `step` is told how much of the whole (0 to 1) has just been done.
std::vector<CheckRow> run_checks(const std::function<void(double)>& step);

std::vector<std::string> check_header();
std::vector<std::string> check_cells(const CheckRow& row);

}  // namespace mhla::cli
