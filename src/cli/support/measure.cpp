// Clocks, the memory meter, and the race between implementations.
#include "cli/support/measure.hpp"

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>

namespace mhla::cli {
namespace {

class MemoryMeter : public c10::MemoryReportingInfoBase {
 public:
  explicit MemoryMeter(torch::DeviceType device) : device_(device) {}
  void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device device) override {
    if (device.type() != device_) return;
    held_ += bytes;
    peak_ = std::max(peak_, held_);
  }
  bool memoryProfilingEnabled() const override { return true; }
  std::int64_t peak() const { return peak_; }

 private:
  torch::DeviceType device_;
  std::int64_t held_ = 0;
  std::int64_t peak_ = 0;
};

double quantile(const std::vector<double>& sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(place);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

double time_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Spread spread(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  return {quantile(samples, 0.5), quantile(samples, 0.1), quantile(samples, 0.9)};
}

void keep_freed_memory() {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

std::size_t peak_allocation(torch::DeviceType device, const std::function<void()>& work) {
  const auto meter = std::make_shared<MemoryMeter>(device);
  {
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, meter);
    work();
  }
  return static_cast<std::size_t>(meter->peak());
}

double copy_bandwidth(torch::Device device) {
  const std::int64_t elements = device.is_cpu() ? 1 << 25 : 1 << 28;
  const int runs = device.is_cpu() ? 5 : 25;
  const Stopwatch stopwatch(device);
  const torch::Tensor from = torch::ones({elements}, device);
  torch::Tensor to = torch::empty_like(from);
  std::vector<double> seconds(static_cast<std::size_t>(runs));
  to.copy_(from);
  for (double& one : seconds) one = stopwatch.time([&] { to.copy_(from); }).seconds;
  return 2.0 * static_cast<double>(from.nbytes()) / spread(seconds).median;
}

MatrixProduct::MatrixProduct(torch::Device device, torch::ScalarType dtype) {
  const std::int64_t side = device.is_cpu() ? 1536 : 8192;
  const auto options = torch::TensorOptions(device.is_cpu() ? torch::kFloat32 : dtype).device(device);
  a_ = torch::randn({side, side}, options);
  b_ = torch::randn({side, side}, options);
  c_ = torch::empty({side, side}, options);
}

double MatrixProduct::flops() const { return 2.0 * std::pow(static_cast<double>(a_.size(0)), 3); }

void race(std::vector<Contestant>& contestants, const Stopwatch& stopwatch, double min_seconds) {
  const std::size_t enough_runs = stopwatch.device().is_cpu() ? 7 : 25;
  constexpr std::size_t kMostRuns = 1000;
  constexpr double kPatience = 5.0;  // times min_seconds, after which fewer runs must do
  constexpr double kHeadStart = 1.5;
  const auto done = [&](const Contestant& contestant) {
    const double total = std::accumulate(contestant.seconds.begin(), contestant.seconds.end(), 0.0);
    const std::size_t runs = contestant.seconds.size();
    return runs >= kMostRuns || (runs >= enough_runs && total >= min_seconds) || total >= kPatience * min_seconds;
  };
  for (bool running = true; running;) {
    running = false;
    for (Contestant& contestant : contestants) {
      if (done(contestant)) continue;
      const Stopwatch::Lap lap = stopwatch.time(contestant.run, kHeadStart * contestant.host_seconds);
      contestant.seconds.push_back(lap.seconds);
      contestant.host_seconds = lap.host_seconds;
      running = running || !done(contestant);
    }
  }
}

double fitted_exponent(const std::vector<double>& x, const std::vector<double>& y) {
  double sx = 0.0;
  double sy = 0.0;
  double sxx = 0.0;
  double sxy = 0.0;
  const auto n = static_cast<double>(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = std::log(x[i]);
    const double w = std::log(y[i]);
    sx += u;
    sy += w;
    sxx += u * u;
    sxy += u * w;
  }
  return (n * sxy - sx * sy) / (n * sxx - sx * sx);
}

}  // namespace mhla::cli
