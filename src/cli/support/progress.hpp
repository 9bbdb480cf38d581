// Progress of long work on the standard error stream: one line that redraws itself on a terminal, plain lines
// elsewhere. Silent for the first two seconds, so that quick work says nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mhla::cli {

class Progress {
 public:
  Progress(std::string task, double total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `amount` of the total is done; `detail` says what comes next.
  void advance(double amount, const std::string& detail = "");
  void finish();  // clears the line

 private:
  using Clock = std::chrono::steady_clock;
  void show(const std::string& detail);

  std::string task_;
  double total_;
  double done_ = 0.0;
  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_shown_ = start_;
};

}  // namespace mhla::cli
