// Streaming: cutting a causal call into pieces, down to single tokens, does not change its result.
#include "mhla/state.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "api/state_case.hpp"
#include "cpu/element.hpp"
#include "support/expect_error.hpp"
#include "support/parity_file.hpp"

namespace mhla {
namespace {

constexpr BeyondTrained kPolicies[] = {BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate};

// Prefill to every split point, then single tokens.
template <typename E, typename T>
void expect_splits_agree(const Case<E, T>& c, double tolerance) {
  const std::vector<E> expected = c.one_shot();
  for (std::int64_t split = 0; split <= c.tokens; ++split) {
    std::vector<E> o = c.poisoned_output();
    State state = c.state();
    c.prefill(state, 0, split, o);
    for (std::int64_t token = split; token < c.tokens; ++token) c.step(state, token, o);
    EXPECT_EQ(state.tokens(), c.tokens);
    EXPECT_LT(relative_rms(o, expected), tolerance) << "split at " << split;
  }
}

TEST(State, PrefillThenStepsEqualOneCallInDouble) {
  for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper})
    for (const bool per_head : {false, true})
      for (const FeatureMap map : {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp,
                                   FeatureMap::squared_relu}) {
        if (normalizer == Normalizer::paper && map == FeatureMap::identity) continue;  // the denominator may vanish
        StateConfig config = small_config(DType::f64);
        config.options.normalizer = normalizer;
        config.options.feature_map = map;
        config.mixing_per_head = per_head;
        SCOPED_TRACE(std::string(name(normalizer)) + " " + std::string(name(map)));
        expect_splits_agree(Case<double, double>(config, 23), 1e-10);
      }
}

TEST(State, PrefillThenStepsEqualOneCallInFloat) {
  StateConfig config = small_config(DType::f32);
  config.key_dim = 24;
  config.value_dim = 70;
  expect_splits_agree(Case<float, float>(config, 22), 1e-5);
}

TEST(State, PrefillThenStepsEqualOneCallInLowPrecision) {
  expect_splits_agree(Case<Half, float>(small_config(DType::f16), 21), 2e-3);
  expect_splits_agree(Case<BFloat16, float>(small_config(DType::bf16), 21), 8e-3);
}

TEST(State, PrefillCutAtBlockBordersIsBitForBitOneCall) {
  for (const bool per_head : {false, true}) {
    StateConfig config = small_config(DType::f32);
    config.mixing_per_head = per_head;
    const Case<float, float> c(config, 24);
    const std::vector<float> expected = c.one_shot(true);
    for (std::int64_t split = 0; split <= 24; split += 4) {
      std::vector<float> o = c.poisoned_output();
      State state = c.state();
      c.prefill(state, 0, split, o);
      c.prefill(state, split, 24, o);
      EXPECT_TRUE(same_bits(o, expected)) << "split at " << split;
    }
  }
}

TEST(State, PrefillMayBeCutAnywhere) {
  const Case<double, double> c(small_config(DType::f64), 24);
  const std::vector<double> expected = c.one_shot();
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 30; ++repeat) {
    std::vector<double> o = c.poisoned_output();
    State state = c.state();
    for (std::int64_t begin = 0; begin < 24;) {
      const std::int64_t end = std::min<std::int64_t>(24, begin + random() % 10);
      c.prefill(state, begin, end, o);
      begin = end;
    }
    EXPECT_LT(relative_rms(o, expected), 1e-10);
  }
}

TEST(State, ReproducesTheAuthorsCausalOperator) {
  for (const auto& [file_name, tokens] : {std::pair{"nlp_op_256", 256}, {"nlp_op_ragged_300", 300}}) {
    const ParityFile file(file_name);
    StateConfig config;
    config.batch = 2;
    config.heads = 2;
    config.kv_heads = 2;
    config.key_dim = 32;
    config.value_dim = 48;
    config.mixing_blocks = 8;
    config.options = {.feature_map = FeatureMap::identity, .normalizer = Normalizer::none, .scale = std::pow(32, -0.5)};
    Case<float, float> c(config, tokens);
    c.q = file.tensor("in/q");
    c.k = file.tensor("in/k");
    c.v = file.tensor("in/v");
    c.mixing = file.tensor("in/mix");
    const std::vector<float> expected = file.tensor("out/o");
    for (const std::int64_t split : {0, 100, 128, tokens}) {
      std::vector<float> o = c.poisoned_output();
      State state = c.state();
      c.prefill(state, 0, split, o);
      for (std::int64_t token = split; token < tokens; ++token) c.step(state, token, o);
      EXPECT_LT(relative_rms(o, expected), 1e-5) << file_name << ", split at " << split;
    }
  }
}

TEST(State, BeyondTheTrainedBlocksEveryPolicyEqualsTheExtendedMatrix) {
  for (const BeyondTrained beyond : kPolicies)
    for (const std::int64_t trained : {1, 2, 5})
      for (const bool per_head : {false, true}) {
        StateConfig config = small_config(DType::f64);
        config.beyond = beyond;
        config.mixing_blocks = trained;
        config.mixing_per_head = per_head;
        SCOPED_TRACE(std::string(name(beyond)) + ", trained for " + std::to_string(trained));
        const Case<double, double> c(config, 99);
        const std::vector<double> expected = c.one_shot();
        for (const std::int64_t split : {0, 1, 4, 7, 8, 19, 20, 21, 60, 63, 98, 99}) {
          std::vector<double> o = c.poisoned_output();
          State state = c.state();
          c.prefill(state, 0, split, o);
          const std::int64_t steps_end = std::min<std::int64_t>(split + 17, c.tokens);
          for (std::int64_t token = split; token < steps_end; ++token) c.step(state, token, o);
          c.prefill(state, steps_end, c.tokens, o);
          EXPECT_LT(relative_rms(o, expected), 1e-10) << "split at " << split;
        }
      }
}

TEST(State, MemoryStaysFlatForPoliciesThatForget) {
  for (const BeyondTrained beyond : {BeyondTrained::clamp, BeyondTrained::running_mean}) {
    StateConfig config = small_config(DType::f32);
    config.batch = 1;
    config.beyond = beyond;
    const Case<float, float> c(config, 4000);
    std::vector<float> o = c.poisoned_output();
    State state = c.state();
    c.prefill(state, 0, 100, o);
    const std::size_t early = state.bytes();
    c.prefill(state, 100, 3000, o);
    for (std::int64_t token = 3000; token < 4000; ++token) c.step(state, token, o);
    EXPECT_EQ(state.bytes(), early) << name(beyond);
    EXPECT_TRUE(std::ranges::all_of(o, [](float x) { return std::isfinite(x); }));
  }
}

TEST(State, AForkGoesItsOwnWay) {
  const Case<float, float> c(small_config(DType::f32), 24), other(small_config(DType::f32), 24, 2);
  std::vector<float> o = c.poisoned_output(), o_fork = o, o_other = o;
  State state = c.state();
  c.prefill(state, 0, 10, o);
  State fork = state.fork();
  EXPECT_EQ(fork.tokens(), 10);
  for (std::int64_t token = 10; token < 24; ++token) {
    other.step(fork, token, o_other);
    c.step(state, token, o);
  }
  State alone = c.state();
  c.prefill(alone, 0, 10, o_fork);
  for (std::int64_t token = 10; token < 24; ++token) c.step(alone, token, o_fork);
  EXPECT_TRUE(same_bits(o, o_fork));
  EXPECT_FALSE(same_bits(o, o_other));
}

TEST(State, ARefusedCallLeavesTheStateAsItWas) {
  const Case<float, float> c(small_config(DType::f32), 25);  // one token more than the matrix is for
  std::vector<float> o = c.poisoned_output();
  State state = c.state();
  c.prefill(state, 0, 24, o);
  const std::vector<std::byte> before = state.serialize();
  expect_error([&] { c.step(state, 24, o); }, {"tokens is 1 after 24", "7 blocks", "trained for 6", "clamp"});
  expect_error([&] { c.prefill(state, 24, 25, o); }, {"7 blocks"});
  expect_error([&] { state.prefill(-1, {}, {}, {}, {}); }, {"tokens is -1"});
  EXPECT_EQ(state.serialize(), before);
  State fresh = c.state();
  expect_error([&] { c.prefill(fresh, 0, 25, o); }, {"tokens is 25"});
  expect_error([&] { fresh.prefill(4, {}, {}, {}, {}); }, {"q is null"});
  expect_error([&] { fresh.step({}, {}, {}, {}); }, {"q is null"});
  EXPECT_EQ(fresh.tokens(), 0);
}

TEST(State, NoTokensChangeNothing) {
  const Case<float, float> c(small_config(DType::f32), 5);
  std::vector<float> o = c.poisoned_output();
  State state = c.state();
  state.prefill(0, {}, {}, {}, {});
  EXPECT_EQ(state.tokens(), 0);
  c.prefill(state, 0, 5, o);
  const std::vector<std::byte> before = state.serialize();
  state.prefill(0, {}, {}, {}, {});
  EXPECT_EQ(state.serialize(), before);
}

TEST(State, BadConfigurationsAreRefusedByName) {
  const std::vector<float> mixing(4 * 6 * 6, 1.0F);
  const auto expect = [&](auto change, std::initializer_list<std::string_view> mentions) {
    StateConfig config = small_config(DType::f32);
    change(config);
    expect_error([&] { State(config, mixing.data()); }, mentions);
  };
  expect([](StateConfig& c) { c.batch = 0; }, {"batch is 0"});
  expect([](StateConfig& c) { c.kv_heads = 3; }, {"kv_heads is 3"});
  expect([](StateConfig& c) { c.key_dim = 0; }, {"key_dim is 0"});
  expect([](StateConfig& c) { c.value_dim = -1; }, {"value_dim is -1"});
  expect([](StateConfig& c) { c.block_size = 0; }, {"block_size is 0"});
  expect([](StateConfig& c) { c.mixing_blocks = 0; }, {"mixing_blocks is 0"});
  expect([](StateConfig& c) { c.options.masking = Masking::block_causal; }, {"masking", "token-causal"});
  expect([](StateConfig& c) { c.options.normalizer = Normalizer::authors; }, {"normalizer", "none or paper"});
  expect([](StateConfig& c) { c.options.scale = std::numeric_limits<double>::infinity(); }, {"scale"});
  expect_error([] { State(small_config(DType::f32), nullptr); }, {"mixing is null"});
  std::vector<float> broken = mixing;
  broken[2 * 6 + 1] = std::numeric_limits<float>::quiet_NaN();
  expect_error([&] { State(small_config(DType::f32), broken.data()); }, {"mixing[2, 1] is not finite"});
  broken = mixing;
  broken[1 * 6 + 2] = std::numeric_limits<float>::quiet_NaN();  // above the diagonal, never read
  EXPECT_NO_THROW(State(small_config(DType::f32), broken.data()));
}

}  // namespace
}  // namespace mhla
