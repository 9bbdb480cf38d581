// The library's thread pool.
//
// One job at a time: the caller publishes a task and the number of its runs, then works along with the pool. A run is
// claimed by lowering `unclaimed_`; a job cannot end while a claimed run is unfinished, so its task is read only after
// a claim. Calls from inside a run, or while another thread holds the pool, run on their own thread.
#include "mhla/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/sizes.hpp"
#include "mhla/types.hpp"

namespace mhla {
namespace {

using Task = std::function<void(std::int64_t)>;

constexpr int kSpins = 1000;  // tens of microseconds: bridges the gap between two stages of one call

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

void run_inline(std::int64_t count, const Task& task) {
  for (std::int64_t i = 0; i < count; ++i) task(i);
}

class Pool {
 public:
  explicit Pool(int threads)
      : parallel_{threads, [this](std::int64_t count, const Task& task) { for_each(count, task); }} {}

  const Parallel& parallel() const { return parallel_; }

 private:
  void for_each(std::int64_t count, const Task& task) {
    if (count <= 1 || parallel_.threads <= 1 || busy_.exchange(true, std::memory_order_acquire)) {
      run_inline(count, task);
      return;
    }
    const Held held{busy_};
    start_workers();
    task_ = &task;
    count_ = count;
    failed_.store(false, std::memory_order_relaxed);
    unfinished_.store(count, std::memory_order_relaxed);
    unclaimed_.store(count);
    if (sleepers_.load() > 0) {
      const std::lock_guard lock(mutex_);
      wake_.notify_all();
    }
    while (run_one()) {
    }
    wait_until_finished();
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(std::exchange(failure_, nullptr));
  }

  struct Held {
    std::atomic<bool>& busy;
    ~Held() { busy.store(false, std::memory_order_release); }
  };

  void start_workers() {
    if (started_) return;
    started_ = true;
    // A machine that refuses a thread leaves the pool with those it has; the caller alone is enough.
    try {
      for (int i = 1; i < parallel_.threads; ++i) std::thread([this] { work(); }).detach();
    } catch (const std::system_error&) {
    }
  }

  void work() {
    for (;;) {
      for (int spin = 0; spin < kSpins && unclaimed_.load(std::memory_order_relaxed) == 0; ++spin) pause();
      if (unclaimed_.load() == 0) {
        std::unique_lock lock(mutex_);
        sleepers_.fetch_add(1);
        wake_.wait(lock, [this] { return unclaimed_.load() != 0; });
        sleepers_.fetch_sub(1);
      }
      while (run_one()) {
      }
    }
  }

  // Claims a run and does it; false when none is left.
  bool run_one() {
    std::int64_t left = unclaimed_.load();
    do {
      if (left == 0) return false;
    } while (!unclaimed_.compare_exchange_weak(left, left - 1));
    if (!failed_.load(std::memory_order_relaxed)) {
      try {
        (*task_)(count_ - left);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (!failure_) failure_ = std::current_exception();
        failed_.store(true, std::memory_order_release);
      }
    }
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard lock(mutex_);
      finished_.notify_all();
    }
    return true;
  }

  void wait_until_finished() {
    for (int spin = 0; spin < kSpins && unfinished_.load(std::memory_order_acquire) != 0; ++spin) pause();
    if (unfinished_.load(std::memory_order_acquire) == 0) return;
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return unfinished_.load(std::memory_order_acquire) == 0; });
  }

  const Parallel parallel_;
  std::atomic<bool> busy_ = false;
  bool started_ = false;

  const Task* task_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> unclaimed_ = 0;
  std::atomic<std::int64_t> unfinished_ = 0;
  std::atomic<bool> failed_ = false;
  std::exception_ptr failure_;

  std::mutex mutex_;
  std::condition_variable wake_, finished_;
  std::atomic<int> sleepers_ = 0;
};

void check_threads(std::int64_t threads, const std::string& argument) {
  if (threads < 1 || threads > kMostThreads)
    throw Error(argument + " is " + std::to_string(threads) + "; it may be 1 to " + std::to_string(kMostThreads));
}

int threads_of_environment() {
  const char* text = std::getenv("MHLA_NUM_THREADS");
  if (text == nullptr || *text == '\0') return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  std::int64_t threads = 0;
  const char* end = text + std::strlen(text);
  const auto [rest, failure] = std::from_chars(text, end, threads);
  if (failure != std::errc{} || rest != end)
    throw Error("MHLA_NUM_THREADS is '" + std::string(text) + "'; it may be 1 to " + std::to_string(kMostThreads));
  check_threads(threads, "MHLA_NUM_THREADS");
  return static_cast<int>(threads);
}

// One pool per number of threads ever asked for, never destroyed: callers may hold a reference, and idle threads sleep.
class Pools {
 public:
  const Parallel& current() {
    Pool* pool = current_.load(std::memory_order_acquire);
    if (pool == nullptr) {
      const std::lock_guard lock(mutex_);
      pool = current_.load(std::memory_order_acquire);
      if (pool == nullptr) pool = select(threads_of_environment());
    }
    return pool->parallel();
  }

  void set(int threads) {
    check_threads(threads, "threads");
    const std::lock_guard lock(mutex_);
    select(threads);
  }

 private:
  Pool* select(int threads) {
    std::unique_ptr<Pool>& pool = pools_[threads];
    if (!pool) pool = std::make_unique<Pool>(threads);
    current_.store(pool.get(), std::memory_order_release);
    return pool.get();
  }

  std::mutex mutex_;
  std::map<int, std::unique_ptr<Pool>> pools_;
  std::atomic<Pool*> current_ = nullptr;
};

Pools& pools() {
  static Pools* const instance = std::make_unique<Pools>().release();
  return *instance;
}

}  // namespace

const Parallel& default_parallel() { return pools().current(); }

void set_num_threads(int threads) { pools().set(threads); }

const Parallel& serial() {
  static const Parallel instance{1, run_inline};
  return instance;
}

}  // namespace mhla
