// torch's profiler, with the events of a name added up.
#include "cli/bench/profile.hpp"

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <map>
#include <set>

#include "cli/support/output.hpp"

namespace mhla::cli::bench {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

// Time of an event without the events inside it on the same thread or stream.
using Own = std::vector<std::pair<const profiler::KinetoEvent*, double>>;

Own own_times(const std::vector<profiler::KinetoEvent>& events, c10::DeviceType device) {
  std::map<std::pair<std::uint64_t, std::int64_t>, std::vector<const profiler::KinetoEvent*>> lanes;
  for (const profiler::KinetoEvent& event : events)
    if (event.deviceType() == device && !event.isAsync() && !event.isHiddenEvent())
      lanes[{event.startThreadId(), device == c10::kCPU ? 0 : event.deviceResourceId()}].push_back(&event);
  Own own;
  for (auto& lane : lanes) {
    std::ranges::stable_sort(lane.second, [](const auto* a, const auto* b) {
      return a->startNs() != b->startNs() ? a->startNs() < b->startNs() : a->endNs() > b->endNs();
    });
    std::vector<std::size_t> open;  // places in `own` of the events around the next one
    for (const profiler::KinetoEvent* event : lane.second) {
      const auto around = [&](const profiler::KinetoEvent* other) {
        return other->endNs() > event->startNs() && other->endNs() >= event->endNs();
      };
      while (!open.empty() && !around(own[open.back()].first)) open.pop_back();
      const auto ms = static_cast<double>(event->durationNs()) / 1e6;
      if (!open.empty()) own[open.back()].second -= ms;
      open.push_back(own.size());
      own.emplace_back(event, ms);
    }
  }
  return own;
}

}  // namespace

std::vector<ProfileRow> profile_of(at::Device device, const std::function<void()>& work) {
  const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO);
  std::set<ActivityType> activities = {ActivityType::CPU};
  if (device.is_cuda()) activities.insert(ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  profiler::enableProfiler(config, activities, {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
  work();
  if (device.is_cuda()) torch::cuda::synchronize();
  const auto result = profiler::disableProfiler();
  std::map<std::string, ProfileRow> rows;
  for (const auto& [event, ms] : own_times(result->events(), device.type())) {
    ProfileRow& row = rows[event->name()];
    row.name = event->name(), row.ms += ms, ++row.calls;
  }
  std::vector<ProfileRow> sorted;
  sorted.reserve(rows.size());
  for (const auto& item : rows) sorted.push_back(item.second);
  std::ranges::stable_sort(sorted, [](const ProfileRow& a, const ProfileRow& b) { return a.ms > b.ms; });
  return sorted;
}

std::string profile_table(const std::vector<ProfileRow>& rows, std::size_t most) {
  constexpr std::size_t kNameLength = 100;
  double all = 0.0;
  for (const ProfileRow& row : rows) all += row.ms;
  std::vector<std::vector<std::string>> lines;
  for (const ProfileRow& row : rows) {
    if (lines.size() == most) break;
    lines.push_back({three_digits(row.ms), fmt::format("{:.1f} %", 100.0 * row.ms / all), std::to_string(row.calls),
                     row.name.substr(0, kNameLength)});
  }
  return table({"ms", "share", "calls", "kernel"}, lines) + fmt::format("{} ms in all\n", three_digits(all));
}

}  // namespace mhla::cli::bench
