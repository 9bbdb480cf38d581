// One thread at a time uses a state: whoever comes second is told so, and nothing is harmed.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <utility>

#include "api/state_case.hpp"
#include "mhla/mhla.h"
#include "support/expect_error.hpp"

namespace mhla {
namespace {

using FloatCase = Case<float, float>;

// Runs tasks on the calling thread; before the first, `meanwhile` runs to its end on another thread. The step that
// opens a block always asks for threads.
Parallel interrupted_by(const std::function<void()>& meanwhile) {
  return {.threads = 1, .for_each = [&meanwhile](std::int64_t count, const std::function<void(std::int64_t)>& task) {
            std::thread(meanwhile).join();
            for (std::int64_t n = 0; n < count; ++n) task(n);
          }};
}

TEST(StateThreads, ASecondCallIsRefusedAndChangesNothing) {
  const FloatCase c(small_config(DType::f32), 24);
  std::vector<float> o = c.poisoned_output(), expected = o, other = o;
  State alone = c.state(), state = c.state();
  c.step(alone, 0, expected);

  int refused = 0;
  const std::function<void()> meanwhile = [&] {
    const auto expect_refused = [&](const std::function<void()>& call) {
      expect_error(call, {"state is in use by another call", "one thread at a time"});
      ++refused;
    };
    expect_refused([&] { c.prefill(state, 0, 4, other); });
    expect_refused([&] { c.step(state, 0, other); });
    expect_refused([&] { static_cast<void>(state.fork()); });
    expect_refused([&] { static_cast<void>(state.serialize()); });
    expect_refused([&] { static_cast<void>(state.tokens()); });
    expect_refused([&] { static_cast<void>(state.bytes()); });
    EXPECT_EQ(state.config().block_size, c.config.block_size);
  };
  const Parallel parallel = interrupted_by(meanwhile);
  const StateConfig& config = c.config;
  state.step(c.at(c.q, 0, config.heads, config.key_dim), c.at(c.k, 0, config.kv_heads, config.key_dim),
             c.at(c.v, 0, config.kv_heads, config.value_dim), c.out(o, 0), &parallel);
  EXPECT_GE(refused, 6);
  EXPECT_TRUE(same_bits(o, expected));
  EXPECT_EQ(state.serialize(), alone.serialize());
}

TEST(StateThreads, ARefusedCallFreesTheState) {
  const FloatCase c(small_config(DType::f32), 4);
  State state = c.state();
  expect_error([&] { state.step({}, {}, {}, {}); }, {"q is null"});
  EXPECT_EQ(state.tokens(), 0);
}

TEST(StateThreads, TheCInterfaceRefusesASecondCall) {
  mhla_state_config config = mhla_default_state_config();
  config.key_dim = config.value_dim = 4;
  config.block_size = 2;
  config.mixing_blocks = 1;
  const float mixing = 1;
  mhla_state* state = nullptr;
  ASSERT_EQ(mhla_state_create(&config, &mixing, &state), MHLA_OK) << mhla_last_error();

  struct Meanwhile {
    mhla_state* state;
    bool refused;
  } meanwhile{state, false};
  const auto for_each = [](void* context, std::int64_t count, void (*task)(void*, std::int64_t), void* task_context) {
    std::thread([context] {
      auto& [busy, refused] = *static_cast<Meanwhile*>(context);
      mhla_state* fork = nullptr;
      std::size_t size = 0;
      EXPECT_EQ(mhla_state_fork(busy, &fork), MHLA_BAD_ARGUMENT);
      EXPECT_EQ(mhla_state_serialize(busy, nullptr, &size), MHLA_BAD_ARGUMENT);
      EXPECT_EQ(mhla_state_bytes(busy), 0U);
      EXPECT_EQ(mhla_state_tokens(busy), -1);
      EXPECT_NE(std::string(mhla_last_error()).find("state is in use"), std::string::npos) << mhla_last_error();
      refused = true;
    }).join();
    for (std::int64_t n = 0; n < count; ++n) task(task_context, n);
  };
  const mhla_parallel parallel{1, &meanwhile, for_each};
  const std::vector<float> x(4, 1.0F);
  std::vector<float> o(4);
  const mhla_const_tensor in = mhla_const_contiguous(x.data(), 1, 1, 4);
  EXPECT_EQ(mhla_state_step(state, in, in, in, mhla_contiguous(o.data(), 1, 1, 4), &parallel), MHLA_OK);
  EXPECT_TRUE(meanwhile.refused);
  EXPECT_EQ(mhla_state_tokens(state), 1);
  mhla_state_destroy(state);
}

TEST(StateThreads, ManyThreadsOnOneStateLeaveItWhole) {
  StateConfig config = small_config(DType::f32);
  config.beyond = BeyondTrained::clamp;
  const FloatCase c(config, 8);
  State state = c.state();
  std::atomic<std::int64_t> consumed = 0;
  const auto attempt = [&](int kind, std::vector<float>& o) {
    try {
      if (kind == 0) c.prefill(state, 0, 8, o), consumed += 8;
      if (kind == 1) c.step(state, 0, o), consumed += 1;
      if (kind == 2) c.step(*std::make_unique<State>(state.fork()), 1, o);
      if (kind == 3) static_cast<void>(State::restore(state.serialize()).tokens());
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("state is in use"), std::string::npos) << error.what();
    }
  };
  std::vector<std::thread> threads;
  for (int kind = 0; kind < 4; ++kind)
    threads.emplace_back([&, kind] {
      std::vector<float> o = c.poisoned_output();
      for (int repeat = 0; repeat < 300; ++repeat) attempt(kind, o);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(state.tokens(), consumed);
}

TEST(StateThreads, ForksAreUsedByThreadsOfTheirOwn) {
  const FloatCase c(small_config(DType::f32), 24);
  std::vector<float> expected = c.poisoned_output();
  State state = c.state();
  c.prefill(state, 0, 10, expected);
  std::vector<std::vector<float>> outputs(4, expected);
  std::vector<std::thread> threads;
  for (std::vector<float>& o : outputs)
    threads.emplace_back([&c, &o, fork = std::make_shared<State>(state.fork())] {
      for (std::int64_t token = 10; token < 24; ++token) c.step(*fork, token, o);
    });
  for (std::thread& thread : threads) thread.join();
  for (std::int64_t token = 10; token < 24; ++token) c.step(state, token, expected);
  for (const std::vector<float>& o : outputs) EXPECT_TRUE(same_bits(o, expected));
}

TEST(StateThreads, AStateThatWasMovedSaysSo) {
  const FloatCase c(small_config(DType::f32), 4);
  State state = c.state();
  const State other = std::move(state);
  expect_error([&] { static_cast<void>(state.tokens()); }, {"state is empty", "moved"});
  EXPECT_EQ(other.tokens(), 0);
}

}  // namespace
}  // namespace mhla
