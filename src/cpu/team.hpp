// Spreads tasks over workers, each with a number of its own (and so with scratch memory of its own).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "mhla/parallel.hpp"

namespace mhla::cpu {

class Team {
 public:
  Team() = default;  // the calling thread alone
  Team(const Parallel& parallel, int workers) : parallel_(&parallel), workers_(workers) {}

  int workers() const { return workers_; }

  // task(worker, index) for every index; a worker takes the next index when it is done with one.
  template <typename Task>
  void for_each(std::int64_t count, Task&& task) const {
    const auto workers = std::min<std::int64_t>(workers_, count);
    if (workers <= 1) {
      for (std::int64_t i = 0; i < count; ++i) task(0, i);
      return;
    }
    std::atomic<std::int64_t> next{0};
    parallel_->for_each(workers, [&](std::int64_t worker) {
      for (std::int64_t i = next++; i < count; i = next++) task(static_cast<int>(worker), i);
    });
  }

 private:
  const Parallel* parallel_ = nullptr;
  int workers_ = 1;
};

// How a call uses its threads: independent units (a sequence's kv head) side by side when there are enough of them to
// keep all threads busy, else all threads together on one unit after the other.
struct Schedule {
  int side_by_side;  // units in progress at once
  int per_unit;      // workers on each

  Schedule(std::int64_t units, int threads) {
    const bool enough = units >= 4 * static_cast<std::int64_t>(threads) || units % threads == 0;
    side_by_side = enough ? threads : 1;
    per_unit = enough ? 1 : threads;
  }
};

}  // namespace mhla::cpu
