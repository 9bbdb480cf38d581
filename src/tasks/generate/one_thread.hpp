// Pictures by threads: each is the work of one, several at a time. So its bits depend neither on the other pictures nor
// on the number of threads.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>

namespace mhla::tasks {

// work(i) for every i below `count`.
template <typename Work>
void for_each_on_one_thread(std::int64_t count, const Work& work) {
  // Inside of a parallel loop torch uses one thread; a loop of one step would be none.
  at::parallel_for(0, std::max<std::int64_t>(count, 2), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < std::min(end, count); ++i) work(i);
  });
}

}  // namespace mhla::tasks
