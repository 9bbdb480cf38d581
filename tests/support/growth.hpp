// How much longer work takes that is eight times as large.
#pragma once

#include <algorithm>
#include <ctime>

namespace mhla::testing {

// In time of this process on a processor, the shortest of three. About 10 for work of n log n steps, 64 for n^2.
template <typename Work>
double growth_of_eightfold(Work&& work, int size) {
  const auto shortest = [&](int count) {
    std::clock_t best = 0;
    for (int trial = 0; trial < 3; ++trial) {
      const std::clock_t start = std::clock();
      work(count);
      const std::clock_t spent = std::clock() - start;
      best = trial == 0 ? spent : std::min(best, spent);
    }
    return static_cast<double>(std::max<std::clock_t>(best, 1));
  };
  return shortest(8 * size) / shortest(size);
}

}  // namespace mhla::testing
