// Lends torch's own threads to the operator, so that both share one pool and one setting.
#include "mhla/parallel.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

namespace mhla::dispatch {

// Tasks are claimed one by one: they differ in length, and at::parallel_for alone would split them into equal ranges.
Parallel torch_parallel() {
  const int threads = at::in_parallel_region() ? 1 : at::get_num_threads();
  return {threads, [threads](std::int64_t count, const std::function<void(std::int64_t)>& task) {
            if (threads == 1 || count <= 1) {
              for (std::int64_t i = 0; i < count; ++i) task(i);
              return;
            }
            std::atomic<std::int64_t> next{0};
            at::parallel_for(0, std::min<std::int64_t>(threads, count), 1, [&](std::int64_t, std::int64_t) {
              for (std::int64_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) task(i);
            });
          }};
}

}  // namespace mhla::dispatch
