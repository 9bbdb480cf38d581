// The thread pool: every run happens once, calls may nest and overlap, and failures reach the caller.
#include "mhla/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "support/expect_error.hpp"

namespace mhla {
namespace {

// Four threads for the length of a test, whatever the machine has.
class ParallelPool : public testing::Test {
 protected:
  void SetUp() override { set_num_threads(4); }
  void TearDown() override { set_num_threads(before_); }
  const int before_ = default_parallel().threads;
};

void expect_each_once(const Parallel& parallel, std::int64_t count) {
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  parallel.for_each(count, [&](std::int64_t i) { runs[static_cast<std::size_t>(i)].fetch_add(1); });
  for (const auto& n : runs) ASSERT_EQ(n.load(), 1);
}

TEST_F(ParallelPool, RunsEveryIndexOnce) {
  for (const std::int64_t count : {0, 1, 2, 3, 4, 5, 1000})
    for (int repeat = 0; repeat < 50; ++repeat) expect_each_once(default_parallel(), count);
}

TEST_F(ParallelPool, SpreadsRunsThatWaitForEachOther) {
  std::atomic<int> arrived = 0;
  default_parallel().for_each(4, [&](std::int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 4) std::this_thread::yield();
  });
  EXPECT_EQ(arrived.load(), 4);
}

TEST_F(ParallelPool, WakesAgainAfterSleeping) {
  for (int repeat = 0; repeat < 3; ++repeat) {
    expect_each_once(default_parallel(), 100);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

TEST_F(ParallelPool, NestedCallsWork) {
  std::atomic<int> runs = 0;
  default_parallel().for_each(
      8, [&](std::int64_t) { default_parallel().for_each(8, [&](std::int64_t) { runs.fetch_add(1); }); });
  EXPECT_EQ(runs.load(), 64);
}

TEST_F(ParallelPool, CallsFromSeveralThreadsWork) {
  std::vector<std::thread> callers;
  std::atomic<int> runs = 0;
  for (int caller = 0; caller < 4; ++caller)
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 100; ++repeat)
        default_parallel().for_each(16, [&](std::int64_t) { runs.fetch_add(1); });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs.load(), 4 * 100 * 16);
}

TEST_F(ParallelPool, AFailureReachesTheCallerAndThePoolGoesOn) {
  for (int repeat = 0; repeat < 20; ++repeat) {
    EXPECT_THROW(default_parallel().for_each(64,
                                             [](std::int64_t i) {
                                               if (i == 17) throw std::runtime_error("seventeen");
                                             }),
                 std::runtime_error);
    expect_each_once(default_parallel(), 64);
  }
}

TEST_F(ParallelPool, ReferencesSurviveAChangeOfThreads) {
  const Parallel& four = default_parallel();
  set_num_threads(2);
  EXPECT_EQ(default_parallel().threads, 2);
  EXPECT_EQ(four.threads, 4);
  expect_each_once(four, 100);
  expect_each_once(default_parallel(), 100);
}

TEST_F(ParallelPool, NumbersOfThreadsThatMakeNoSenseAreRefused) {
  expect_error([] { set_num_threads(0); }, {"threads is 0", "1 to"});
  expect_error([] { set_num_threads(-2); }, {"threads is -2"});
  EXPECT_EQ(default_parallel().threads, 4);
}

TEST(Serial, RunsInOrderOnTheCallingThread) {
  std::vector<std::int64_t> order;
  const auto caller = std::this_thread::get_id();
  serial().for_each(5, [&](std::int64_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    order.push_back(i);
  });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(serial().threads, 1);
}

}  // namespace
}  // namespace mhla
