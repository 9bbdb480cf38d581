// Where the CPU back end gets its threads: a thread pool of the library, or one the caller lends.
#pragma once

#include <cstdint>
#include <functional>

namespace mhla {

// Runs task(0) .. task(count - 1), in any order, on up to `threads` threads and returns when all are done. The result
// of the operator never depends on how tasks are spread.
struct Parallel {
  int threads = 1;
  std::function<void(std::int64_t count, const std::function<void(std::int64_t)>& task)> for_each;
};

// The library's own pool, one thread per core (MHLA_NUM_THREADS or set_num_threads override); started on first use.
const Parallel& default_parallel();
void set_num_threads(int threads);

// Runs everything on the calling thread.
const Parallel& serial();

}  // namespace mhla
