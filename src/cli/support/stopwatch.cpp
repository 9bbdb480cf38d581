// The clock and the events behind Stopwatch.
#include "cli/support/stopwatch.hpp"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "cli/support/measure.hpp"

namespace mhla::cli {
namespace {

constexpr std::int64_t kSweepBytes = 256 << 20;  // several times the largest cache

}  // namespace

Stopwatch::Stopwatch(torch::Device device) : device_(device) {
  if (device_.is_cpu()) return;
  other_data_ = torch::zeros({kSweepBytes}, torch::TensorOptions(torch::kUInt8).device(device_));
  const auto sweep = [this] { other_data_.zero_(); };
  time(sweep);
  sweep_seconds_ = time(sweep).seconds;
}

Stopwatch::Lap Stopwatch::time(const std::function<void()>& work, double head_start) const {
  if (device_.is_cpu()) {
    const double seconds = time_of(work);
    return {seconds, seconds};
  }
  c10::Event start(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  c10::Event end(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  const c10::Stream stream = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  double busy = 0.0;
  while (busy <= head_start) {
    other_data_.zero_();
    busy += sweep_seconds_;
  }
  start.record(stream);
  const double host_seconds = time_of(work);
  end.record(stream);
  end.synchronize();
  return {1e-3 * start.elapsedTime(end), host_seconds};
}

}  // namespace mhla::cli
