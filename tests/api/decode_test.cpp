// Decoding with memory given by the caller equals one causal call, whatever the positions, policies and types.
#include "mhla/decode.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "api/decode_case.hpp"
#include "support/expect_error.hpp"

namespace mhla::test {
namespace {

constexpr BeyondTrained kPolicies[] = {BeyondTrained::error, BeyondTrained::clamp, BeyondTrained::running_mean,
                                       BeyondTrained::interpolate};

// Rows of a batch step by `sizes` in turn until the tokens are used up.
void expect_equals_one_call(const DecodeConfig& config, std::int64_t tokens, const std::vector<std::int64_t>& sizes,
                            double tolerance, unsigned seed = 1) {
  SCOPED_TRACE(describe(config) + ", steps of " + std::to_string(sizes.front()));
  const DecodeCase c(config, tokens, seed);
  DecodeRun run(c);
  for (std::size_t n = 0; run.consumed() < tokens; ++n)
    run.step(std::min(sizes[n % sizes.size()], tokens - run.consumed()));
  EXPECT_LE(relative_rms(run.outputs(), c.one_call()), tolerance);
  EXPECT_EQ(run.positions(), std::vector<std::int64_t>(static_cast<std::size_t>(config.batch), tokens));
}

TEST(Decode, StepsEqualOneCallInDouble) {
  for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper})
    for (const FeatureMap map :
         {FeatureMap::identity, FeatureMap::relu, FeatureMap::elu_plus_one, FeatureMap::exp, FeatureMap::squared_relu})
      for (const bool per_head : {false, true}) {
        if (normalizer == Normalizer::paper && map == FeatureMap::identity) continue;  // the denominator may vanish
        DecodeConfig config = decode_config(DType::f64);
        config.options.normalizer = normalizer;
        config.options.feature_map = map;
        config.mixing_per_head = per_head;
        expect_equals_one_call(config, 23, {1}, 1e-10);
        expect_equals_one_call(config, 24, {3, 1, 4, 9}, 1e-10);
      }
}

TEST(Decode, ElementTypesAndSummaryTypesKeepTheirPrecision) {
  struct Precision {
    DType dtype, summary;
    double tolerance;
  };
  for (const auto& [dtype, summary, tolerance] :
       {Precision{DType::f32, DType::f32, 1e-5}, Precision{DType::f16, DType::f32, 2e-3},
        Precision{DType::bf16, DType::f32, 8e-3}, Precision{DType::bf16, DType::bf16, 8e-3},
        Precision{DType::f32, DType::bf16, 8e-3}, Precision{DType::f16, DType::bf16, 8e-3}})
    for (const std::int64_t width : {64, 40, 19}) {  // vectors fit, fit in part of the last slice, do not fit
      DecodeConfig config = decode_config(dtype);
      config.summary_dtype = summary;
      config.key_dim = width;
      config.value_dim = width == 40 ? 136 : 2 * width;
      config.block_size = 16;
      for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper}) {
        config.options.normalizer = normalizer;
        expect_equals_one_call(config, 75, {1}, tolerance);
        expect_equals_one_call(config, 75, {5, 1, 20}, tolerance);
      }
    }
}

TEST(Decode, EveryPolicyEqualsTheExtendedMatrix) {
  for (const BeyondTrained beyond : {BeyondTrained::clamp, BeyondTrained::running_mean, BeyondTrained::interpolate})
    for (const std::int64_t trained : {1, 2, 5})
      for (const bool per_head : {false, true}) {
        DecodeConfig config = decode_config(DType::f64);
        config.beyond = beyond;
        config.mixing_blocks = trained;
        config.mixing_per_head = per_head;
        config.max_tokens = beyond == BeyondTrained::interpolate ? 61 : 0;
        expect_equals_one_call(config, 61, {1}, 1e-10);
        expect_equals_one_call(config, 61, {7, 2}, 1e-10);
      }
}

TEST(Decode, RandomShapesEqualOneCall) {
  std::mt19937 random(11);
  const auto among = [&](std::initializer_list<std::int64_t> values) {
    return values.begin()[random() % values.size()];
  };
  for (unsigned repeat = 0; repeat < 40; ++repeat) {
    DecodeConfig config = decode_config(DType::f64);
    config.batch = among({1, 2, 3});
    config.kv_heads = among({1, 2, 3});
    config.heads = config.kv_heads * among({1, 2, 5});
    config.key_dim = among({1, 8, 24, 33, 64, 130});
    config.value_dim = among({1, 7, 16, 48, 129, 260});
    config.block_size = among({1, 3, 16, 70});
    config.mixing_per_head = among({0, 1}) == 1;
    config.beyond = kPolicies[random() % 4];
    const std::int64_t tokens = among({1, 2, 5, 31, 150});
    config.mixing_blocks = among({1, 2, 6});
    if (config.beyond == BeyondTrained::error)
      config.mixing_blocks = (tokens + config.block_size - 1) / config.block_size;
    config.max_tokens = config.beyond == BeyondTrained::interpolate ? tokens : 0;
    expect_equals_one_call(config, tokens, {among({1, 2, 11, 80}), 1, among({3, 6})}, 1e-10, repeat);
  }
}

// Heads enough for a GPU to have kernels of their own for their size.
TEST(Decode, ManyHeadsOfCommonSizesEqualOneCall) {
  struct Form {
    DType dtype, summary;
    Normalizer normalizer;
    BeyondTrained beyond;
    double tolerance;
  };
  for (const std::int64_t width : {64, 128})
    for (const auto& [dtype, summary, normalizer, beyond, tolerance] :
         {Form{DType::bf16, DType::f32, Normalizer::none, BeyondTrained::clamp, 8e-3},
          Form{DType::bf16, DType::bf16, Normalizer::paper, BeyondTrained::running_mean, 8e-3},
          Form{DType::f32, DType::f32, Normalizer::paper, BeyondTrained::clamp, 1e-5}}) {
      DecodeConfig config = decode_config(dtype);
      config.batch = test_device() == Device::cuda ? 190 : 2;
      config.heads = config.kv_heads = 3;
      config.key_dim = config.value_dim = width;
      config.summary_dtype = summary;
      config.options.normalizer = normalizer;
      config.beyond = beyond;
      config.block_size = 8;
      config.mixing_blocks = 2;
      expect_equals_one_call(config, 35, {1}, tolerance);
    }
}

TEST(Decode, RowsOfABatchMayBeAtDifferentTokens) {
  for (const BeyondTrained beyond : {BeyondTrained::clamp, BeyondTrained::running_mean}) {
    DecodeConfig config = decode_config(DType::f64);
    config.batch = 1;
    config.beyond = beyond;
    config.mixing_blocks = 3;
    const DecodeCase first(config, 30, 1);
    DecodeCase second(config, 30, 2);
    second.mixing = first.mixing;
    DecodeRun ahead(first), behind(second);
    ahead.step(13);
    behind.step(6);
    const DecodeCase rest(first, 13, second, 6, 17);
    DecodeRun both(rest, ahead, behind);
    both.step(17);
    ahead.step(17);
    behind.step(17);
    EXPECT_EQ(both.positions(), (std::vector<std::int64_t>{30, 23}));
    const auto token = static_cast<std::ptrdiff_t>(config.heads * config.value_dim);
    const std::vector<double> o_ahead = ahead.outputs(), o_behind = behind.outputs();
    std::vector<double> expected(o_ahead.begin() + 13 * token, o_ahead.begin() + 30 * token);
    expected.insert(expected.end(), o_behind.begin() + 6 * token, o_behind.begin() + 23 * token);
    EXPECT_LE(relative_rms(both.outputs(), expected), 1e-13) << name(beyond);
  }
}

TEST(Decode, OpeningAgainChangesNothing) {
  for (const BeyondTrained beyond : kPolicies) {
    DecodeConfig config = decode_config(DType::f32);
    config.beyond = beyond;
    config.mixing_blocks = beyond == BeyondTrained::error ? 6 : 2;
    config.max_tokens = 24;
    const DecodeCase c(config, 24);
    DecodeRun run(c), again(c);
    for (int n = 0; n < 24; ++n) {
      run.step(1);
      again.open();
      again.step(1);
    }
    EXPECT_EQ(run.outputs(), again.outputs()) << name(beyond);
  }
}

TEST(Decode, MemoryOfForgettingPoliciesDoesNotGrowWithTheTokens) {
  for (const BeyondTrained beyond : {BeyondTrained::clamp, BeyondTrained::running_mean}) {
    DecodeConfig config = decode_config(DType::f32);
    config.beyond = beyond;
    EXPECT_EQ(config.slots(), config.mixing_blocks);
    EXPECT_TRUE(config.folds());
    config.max_tokens = 1 << 30;
    EXPECT_EQ(config.slots(), config.mixing_blocks);
    config.max_tokens = 2 * config.block_size;
    EXPECT_EQ(config.slots(), 2);
    EXPECT_FALSE(config.folds());
  }
}

TEST(Decode, BadArgumentsAreNamed) {
  const DecodeConfig good = decode_config(DType::f32);
  const DecodeCase c(good, 4);
  const auto refused = [&](const std::function<void(DecodeConfig&, std::int64_t&, DecodeArgs&)>& change,
                           std::initializer_list<std::string_view> mentions) {
    DecodeRun run(c);
    DecodeConfig config = run.config();
    std::int64_t tokens = 1;
    DecodeArgs args = run.args(tokens);
    change(config, tokens, args);
    expect_error([&] { decode_step(config, tokens, args); }, mentions);
  };
  refused([](auto& config, auto&, auto&) { config.summary_dtype = DType::f16; }, {"summary_dtype is f16", "bf16"});
  refused([](auto& config, auto&, auto&) { config.max_tokens = -1; }, {"max_tokens is -1"});
  refused([](auto& config, auto&, auto&) { config.max_tokens = 25; }, {"max_tokens is 25", "24", "clamp"});
  refused([](auto& config, auto&, auto&) { config.beyond = BeyondTrained::interpolate; },
          {"max_tokens", "interpolate"});
  refused([](auto& config, auto&, auto&) { config.options.normalizer = Normalizer::authors; }, {"normalizer"});
  refused([](auto& config, auto&, auto&) { config.kv_heads = 3; }, {"kv_heads is 3"});
  refused([](auto&, auto& tokens, auto&) { tokens = -1; }, {"tokens is -1"});
  refused([](auto&, auto&, auto& args) { args.q.data = nullptr; }, {"q is null"});
  refused([](auto&, auto&, auto& args) { args.o.data = nullptr; }, {"o is null"});
  refused([](auto&, auto&, auto& args) { args.mixing = nullptr; }, {"mixing is null"});
  refused([](auto&, auto&, auto& args) { args.memory.S = nullptr; }, {"memory.S is null"});
  refused([](auto&, auto&, auto& args) { args.memory.P_z = nullptr; }, {"memory.P_z is null"});
  refused([](auto&, auto&, auto& args) { args.memory.tokens = nullptr; }, {"memory.tokens is null"});
}

TEST(Decode, OnTheCpuAPositionThatCannotBeIsRefused) {
  DecodeConfig config = decode_config(DType::f32);
  config.device = Device::cpu;
  const DecodeCase c(config, 10);
  for (const auto& [position, message] :
       {std::pair{std::int64_t{-1}, "memory.tokens of batch row 1 is -1; before 2 more it may be 0 to 22"},
        std::pair{std::int64_t{23}, "memory.tokens of batch row 1 is 23"},
        std::pair{std::int64_t{1} << 40, "memory.tokens of batch row 1 is 1099511627776"}}) {
    DecodeRun run(c);
    run.args(0).memory.tokens[1] = position;
    expect_error([&] { run.step(2); }, {message});
    if (position != 23) expect_error([&] { run.open(); }, {"memory.tokens of batch row 1", "before 0 more"});
  }
}

}  // namespace
}  // namespace mhla::test
