// The progress line and its estimate of the time left.
#include "cli/support/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "report/duration.hpp"

namespace mhla::cli {
namespace {

constexpr double kQuietSeconds = 2.0;
constexpr double kTerminalInterval = 0.2;
constexpr double kPlainInterval = 5.0;

double seconds(std::chrono::steady_clock::duration time) { return std::chrono::duration<double>(time).count(); }

// Past std::cerr, which shows control characters instead of obeying them.
void clear_line() { std::fputs("\r\033[K", stderr); }

}  // namespace

Progress::Progress(std::string task, double total)
    : task_(std::move(task)), total_(total), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { finish(); }

void Progress::advance(double amount, const std::string& detail) {
  done_ = std::min(total_, done_ + amount);
  const auto now = Clock::now();
  if (seconds(now - start_) < kQuietSeconds) return;
  if (drawn_ && seconds(now - last_shown_) < (terminal_ ? kTerminalInterval : kPlainInterval)) return;
  last_shown_ = now;
  drawn_ = true;
  show(detail);
}

void Progress::show(const std::string& detail) {
  const double share = total_ > 0.0 ? done_ / total_ : 1.0;
  const double elapsed = seconds(Clock::now() - start_);
  std::string line = fmt::format("{}: {:3.0f} %", task_, 100.0 * share);
  if (share > 0.0 && share < 1.0) line += fmt::format(", {} left", report::duration(elapsed * (1.0 - share) / share));
  if (!detail.empty()) line += fmt::format(" ({})", detail);
  if (terminal_) clear_line();
  std::cerr << line;
  if (!terminal_) std::cerr << std::endl;
}

void Progress::finish() {
  if (terminal_ && drawn_) clear_line();
  drawn_ = false;
}

}  // namespace mhla::cli
