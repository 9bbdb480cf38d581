// No size makes arithmetic overflow: each interface refuses, by name, what is larger than its limit, and works with
// what is large but has few tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <string_view>
#include <vector>

#include "api/decode_case.hpp"
#include "api/operator_case.hpp"
#include "mhla/decode.hpp"
#include "mhla/fused.hpp"
#include "mhla/mhla.h"
#include "mhla/mixing.hpp"
#include "mhla/state.hpp"
#include "support/expect_error.hpp"

namespace mhla::test {
namespace {

constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t power(int bits) { return std::int64_t{1} << bits; }

Problem small_problem() {
  Problem p;
  p.heads = p.kv_heads = 2;
  p.key_dim = p.value_dim = 8;
  p.partition = Partition::line(32, 8);
  p.mixing_blocks = 4;
  return p;
}

TEST(Sizes, PlanRefusesWhatIsLargerThanItsLimitsByName) {
  struct Bad {
    std::string_view named;
    std::function<void(Problem&)> spoil;
  };
  const auto one_block = [](Problem& p, std::int64_t tokens, std::int64_t size) {
    p.partition = Partition::line(tokens, size);
    p.mixing_blocks = 1;
  };
  const std::vector<Bad> table{
      {"blocks may have at most 2^32", [&](Problem& p) { one_block(p, 32, kHuge); }},
      {"blocks may have at most 2^32", [&](Problem& p) { one_block(p, 32, power(33)); }},
      {"blocks may have at most 2^32",
       [&](Problem& p) { one_block(p, 32, power(60)), p.options.normalizer = Normalizer::authors; }},
      {"partition is a line 9223372036854775807", [&](Problem& p) { one_block(p, kHuge, power(32)); }},
      {"batch is", [](Problem& p) { p.batch = kHuge; }},
      {"heads is", [](Problem& p) { p.heads = p.kv_heads = kHuge; }},
      {"batch x tokens x heads x dim", [](Problem& p) { p.batch = power(32), p.heads = p.kv_heads = power(20); }},
      {"mixing_blocks is", [](Problem& p) { p.mixing_blocks = kHuge; }},
      {"mixing_blocks is", [](Problem& p) { p.mixing_blocks = -1, p.partition = Partition::line(0, 8); }},
      {"heads x blocks x blocks of mixing",
       [](Problem& p) {
         p.heads = power(20), p.options.masking = Masking::token_causal;
         p.mixing_blocks = power(24), p.mixing_per_head = true;
       }},
      {"batch x kv_heads x blocks",
       [](Problem& p) { p.batch = power(24), p.key_dim = p.value_dim = 4096, p.partition = Partition::line(4, 1); }},
      {"batch x kv_heads x blocks",
       [](Problem& p) {
         p.partition = Partition::line(0, 8), p.batch = power(32), p.heads = p.kv_heads = power(20);
         p.mixing_blocks = 0;
       }},
      {"cu_seqlens", [](Problem& p) { p.cu_seqlens = {0, kHuge, -kHuge, 32}; }},
  };
  for (const auto& [named, spoil] : table)
    for (const Device device : {Device::cpu, Device::cuda}) {
      Problem p = small_problem();
      p.device = device;
      spoil(p);
      if (device == Device::cuda && p.key_dim > 256) continue;
      expect_error([&] { (void)plan(p); }, {named});
    }
  expect_error([] { (void)plan(small_problem(), std::numeric_limits<int>::max()); }, {"threads is 2147483647", "4096"});
}

TEST(Sizes, InitialTokensNearTheLargestIntegerAreRefused) {
  for (const std::int64_t tokens : {kHuge, kHuge - 31, power(62), power(48) + 8}) {
    Problem p = small_problem();
    p.options.masking = Masking::token_causal;
    p.initial_tokens = tokens;
    expect_error([&] { (void)plan(p); }, {"initial_tokens is " + std::to_string(tokens), "at most 2^48"});
    expect_error([&] { (void)p.initial_blocks(); }, {"initial_tokens"});
    expect_error([&] { (void)p.final_blocks(); }, {"initial_tokens"});
  }
  Problem p = small_problem();
  p.options.masking = Masking::token_causal;
  p.initial_tokens = power(48);
  expect_error([&] { (void)plan(p); }, {"mixing is for 4 blocks"});
}

TEST(Sizes, OffsetsThatNoSequenceHasAreRefused) {
  for (const std::int64_t offset : {-kHuge - 1, std::int64_t{-1}, power(48) + 1, kHuge}) {
    Problem p = small_problem();
    p.cu_seqlens = {offset, 12};
    expect_error([&] { (void)p.final_blocks(); }, {"cu_seqlens is " + std::to_string(offset)});
    p.cu_seqlens = {0, offset, 32};
    expect_error([&] { (void)p.final_blocks(); }, {"cu_seqlens is " + std::to_string(offset)});
  }
}

TEST(Sizes, KernelsOnCudaCountIn32Bits) {
  Problem p = small_problem();
  p.device = Device::cuda;
  p.options.masking = Masking::token_causal;
  p.partition = Partition::line(32, power(31));
  p.initial_tokens = power(31);
  p.mixing_blocks = 2;
  expect_error([&] { (void)plan(p); }, {"partition is a line 32, blocks of 2147483648", "on CUDA", "2^30"});
  p = small_problem();
  p.device = Device::cuda;
  p.batch = power(30);
  expect_error([&] { (void)plan(p); }, {"batch or sequences x heads x blocks is 1073741824 x 2 x 4"});
  p = small_problem();
  p.device = Device::cuda;
  p.partition = Partition::by_extent({power(16), power(16)}, {power(15), power(14)}), p.mixing_blocks = 8;
  expect_error([&] { (void)plan(p); }, {"a grid", "on CUDA", "2^31 - 1"});
}

// Blocks that no sequence fills: as if they ended with it.
TEST(Sizes, ABlockMuchLargerThanItsTokensIsOneBlock) {
  for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper, Normalizer::authors})
    for (const Masking masking : {Masking::none, Masking::token_causal}) {
      if (normalizer == Normalizer::authors && masking != Masking::none) continue;
      Problem p = small_problem();
      p.device = test_device();
      p.dtype = DType::f64;
      p.mixing_blocks = 1;
      p.options.normalizer = normalizer;
      p.options.masking = masking;
      p.partition = Partition::line(32, 32);
      const OperatorCase fitting(p, 1);
      const Outputs expected = fitting.forward();
      p.partition = Partition::line(32, power(30));
      const OperatorCase large(p, 1);
      EXPECT_LT(plan(p, 1).forward_workspace(), power(24)) << describe(p);
      EXPECT_EQ(large.forward().o.values(), expected.o.values()) << describe(p);
      EXPECT_EQ(large.backward(expected.o).k.values(), fitting.backward(expected.o).k.values()) << describe(p);
    }
  Problem p = small_problem();
  p.device = test_device();
  p.dtype = DType::f64;
  p.options.normalizer = Normalizer::authors;
  p.mixing_blocks = 2;
  p.partition = Partition::by_extent({4, 8}, {2, 8});
  const Outputs expected = OperatorCase(p, 2).forward();
  p.partition = Partition::by_extent({4, 8}, {2, power(20)});
  EXPECT_EQ(OperatorCase(p, 2).forward().o.values(), expected.o.values());
}

TEST(Sizes, ALargeBatchWithoutTokensIsNoWork) {
  Problem p = small_problem();
  p.partition = Partition::line(0, 8);
  p.mixing_blocks = 0;
  p.batch = power(32);
  for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper}) {
    p.options.normalizer = normalizer;
    const Plan plan = mhla::plan(p, 1);
    const PoisonedWorkspace workspace(std::max(plan.forward_workspace(), plan.backward_workspace()));
    ForwardArgs forward_args;
    forward_args.run = {workspace.data(), workspace.bytes(), nullptr, nullptr};
    forward(plan, forward_args);
    BackwardArgs backward_args;
    backward_args.run = forward_args.run;
    backward(plan, backward_args);
  }
}

StateConfig state_config() {
  StateConfig config;
  config.key_dim = config.value_dim = 4;
  config.block_size = 4;
  config.mixing_blocks = 2;
  config.beyond = BeyondTrained::clamp;
  return config;
}

TEST(Sizes, StatesRefuseWhatIsLargerThanTheirLimitsByName) {
  const std::vector<float> mixing(4, 0.5F), x(64);
  const auto refused = [&](const std::function<void(StateConfig&)>& spoil, std::string_view named) {
    StateConfig config = state_config();
    spoil(config);
    expect_error([&] { (void)State(config, mixing.data()); }, {named});
  };
  refused([](StateConfig& c) { c.block_size = power(61); },
          "block_size is 2305843009213693952; it must be at most 2^32");
  refused([](StateConfig& c) { c.block_size = kHuge; }, "block_size is");
  refused([](StateConfig& c) { c.block_size = 0; }, "block_size is 0; it must be at least 1");
  refused([](StateConfig& c) { c.batch = kHuge; }, "batch is");
  refused([](StateConfig& c) { c.batch = power(32), c.heads = c.kv_heads = power(20); }, "batch x");
  refused([](StateConfig& c) { c.mixing_blocks = power(40); }, "mixing_blocks is");

  StateConfig config = state_config();
  config.block_size = power(32);
  State state(config, mixing.data());
  std::vector<float> o(64);
  const auto in = contiguous<const void*>(x.data(), 4, 1, 4);
  state.prefill(4, in, in, in, contiguous<void*>(o.data(), 4, 1, 4));
  EXPECT_EQ(state.tokens(), 4);
  expect_error([&] { state.prefill(kHuge, in, in, in, contiguous<void*>(o.data(), 4, 1, 4)); },
               {"tokens is 9223372036854775807", "2^48"});
  expect_error([&] { state.prefill(power(48), in, in, in, contiguous<void*>(o.data(), 4, 1, 4)); },
               {"batch x tokens x heads x dim"});
  EXPECT_EQ(state.tokens(), 4);
}

TEST(Sizes, StatesRefuseOutputsWhoseRowsOverlap) {
  const std::vector<float> mixing(4, 0.5F), x(64);
  std::vector<float> o(64);
  State state(state_config(), mixing.data());
  const auto in = contiguous<const void*>(x.data(), 12, 1, 4);
  Tensor out = contiguous<void*>(o.data(), 12, 1, 4);
  out.token_stride = 0;
  expect_error([&] { state.prefill(12, in, in, in, out); }, {"o has a token stride of 0", "overlap"});
  StateConfig config = state_config();
  config.heads = 2;
  State wide(config, mixing.data());
  out = contiguous<void*>(o.data(), 1, 2, 4);
  out.head_stride = 2;
  expect_error([&] { wide.step(in, in, in, out); }, {"o has a head stride of 2"});
  EXPECT_EQ(state.tokens() + wide.tokens(), 0);
}

TEST(Sizes, MixingMatricesRefuseSizesThatWouldWrapAround) {
  const std::vector<double> mixing{1};
  expect_error([&] { extend_causal_mixing(mixing, 1, power(32), BeyondTrained::clamp); },
               {"blocks is 4294967296; it must be at most 2^24"});
  expect_error([&] { extend_causal_mixing(mixing, power(32) + 1, 1, BeyondTrained::clamp); }, {"trained is"});
  expect_error([&] { causal_row(mixing, 1, kHuge, BeyondTrained::interpolate); }, {"block is 9223372036854775807"});
  expect_error([&] { resize_mixing(mixing, Partition::line(8, 8), Partition::line(power(40), 1)); },
               {"blocks of `to` is 1099511627776"});
  expect_error([&] { (void)mixing_init(Partition::line(power(40), 1), MixingInit::uniform); }, {"partition"});
  std::vector<float> matrix(1);
  expect_error([&] { project_mixing(matrix, power(32) + 1); }, {"blocks is 4294967297"});
}

TEST(Sizes, DecodingRefusesBlockSizeZeroByName) {
  for (const std::int64_t block_size : {std::int64_t{0}, std::int64_t{-4}, kHuge}) {
    const DecodeConfig good = decode_config(DType::f32);
    const DecodeCase c(good, 4);
    DecodeRun run(c);
    DecodeConfig config = run.config();
    config.block_size = block_size;
    config.max_tokens = 8;
    const DecodeArgs args = run.args(1);
    const std::string named = "block_size is " + std::to_string(block_size);
    expect_error([&] { decode_step(config, 1, args); }, {named});
    expect_error([&] { decode_open(config, args); }, {named});
    expect_error([&] { (void)config.slots(); }, {named});
    expect_error([&] { (void)config.folds(); }, {named});
  }
}

TEST(Sizes, DecodingRefusesSizesThatWouldWrapAround) {
  const auto refused = [](const std::function<void(DecodeConfig&)>& spoil, std::string_view named) {
    DecodeConfig config = decode_config(DType::f32);
    config.beyond = BeyondTrained::clamp;
    spoil(config);
    expect_error([&] { validate(config); }, {named});
  };
  refused([](DecodeConfig& c) { c.max_tokens = kHuge; }, "max_tokens is 9223372036854775807");
  refused([](DecodeConfig& c) { c.max_tokens = power(40), c.beyond = BeyondTrained::interpolate; }, "max_tokens");
  refused([](DecodeConfig& c) { c.block_size = power(17); }, "block_size is 131072; it must be at most 2^16");
  refused([](DecodeConfig& c) { c.batch = power(32), c.key_dim = c.value_dim = 4096; }, "batch x");
}

TEST(Sizes, DecodingRefusesPositionsOutsideItsMemory) {
  const DecodeCase c(decode_config(DType::f32), 8);
  for (const std::int64_t position : {std::int64_t{-1}, std::int64_t{24}, power(40), kHuge}) {
    DecodeRun run(c);
    const DecodeArgs args = run.args(1);
    args.memory.tokens[1] = position;
    expect_error([&] { decode_step(run.config(), 1, args); },
                 {"memory.tokens of batch row 1 is " + std::to_string(position), "0 to 23"});
  }
}

TEST(Sizes, DecodingRefusesOutputsWhoseRowsOverlap) {
  const DecodeCase c(decode_config(DType::f32), 4);
  DecodeRun run(c);
  DecodeArgs args = run.args(2);
  args.o.batch_stride = 0;
  expect_error([&] { decode_step(run.config(), 2, args); }, {"o has a batch stride of 0", "overlap"});
}

TEST(Sizes, OperatorRefusesOutputsWhoseElementsShareMemory) {
  OperatorCase c(small_problem(), 1);
  const Plan plan = mhla::plan(c.problem, 1);
  const PoisonedWorkspace workspace(std::max(plan.forward_workspace(), plan.backward_workspace()));
  Outputs out = c.empty_outputs();
  ForwardArgs args = c.forward_args(out);
  args.run = {workspace.data(), workspace.bytes(), nullptr, nullptr};
  args.o.token_stride = args.o.head_stride;  // both are the width: heads of a token are where other tokens are
  expect_error([&] { forward(plan, args); }, {"o has a", "stride of 8", "overlap"});
  EXPECT_TRUE(std::isnan(out.o.get(0)));
  Gradients g = c.empty_gradients();
  for (Tensor BackwardArgs::* gradient : {&BackwardArgs::d_q, &BackwardArgs::d_k, &BackwardArgs::d_v}) {
    BackwardArgs back = c.backward_args(out.o, g);
    back.run = args.run;
    (back.*gradient).token_stride = 0;
    expect_error([&] { backward(plan, back); }, {"d_", "token stride of 0", "overlap"});
  }
  args.o = out.o.view();
  args.in.q.token_stride = kHuge;
  expect_error([&] { forward(plan, args); }, {"q has a token stride of 9223372036854775807"});
}

TEST(Sizes, FusedOperatorsRefuseWhatIsLargerThanTheirLimitsByName) {
  using namespace fused;
  GatedNorm norm{.batch = 1, .tokens = 4, .heads = 2, .dim = 8};
  norm.tokens = kHuge;
  expect_error([&] { (void)backward_workspace(norm); }, {"tokens is 9223372036854775807"});
  norm.tokens = power(40), norm.batch = power(30);
  expect_error([&] { (void)backward_workspace(norm); }, {"batch x tokens x heads x width"});
  norm = {.batch = 1, .tokens = 4, .heads = kHuge, .dim = 8};
  expect_error([&] { (void)backward_workspace(norm); }, {"heads is"});
  Modulate modulate{.batch = power(32), .tokens = 0, .channels = power(24)};
  expect_error([&] { (void)backward_workspace(modulate); }, {"batch x tokens x heads x width"});
  const Rotary rotary{.layout = RotaryLayout::half, .axes = 1, .sizes = {kHuge}, .pairs = {4}};
  float cos = 0, sin = 0;
  expect_error([&] { rotary_table(rotary, 1e4, 0, DType::f32, &cos, &sin); }, {"rotary.sizes x its rotary.pairs"});
  const Rotary one{.layout = RotaryLayout::half, .axes = 1, .sizes = {1}, .pairs = {1}};
  expect_error([&] { rotary_table(one, 1e4, kHuge, DType::f32, &cos, &sin); }, {"offset is 9223372036854775807"});
}

TEST(Sizes, FusedOperatorsRefuseOutputsWhoseRowsOverlap) {
  using namespace fused;
  std::vector<float> x(2 * 4 * 2 * 8), y(x.size());
  const auto in = contiguous<const void*>(x.data(), 4, 2, 8);
  Tensor out = contiguous<void*>(y.data(), 4, 2, 8);
  out.batch_stride = 8;
  const GatedNorm norm{.batch = 2, .tokens = 4, .heads = 2, .dim = 8};
  expect_error([&] { forward(norm, {.in = {.x = in, .weight = {}, .gate = {}}, .y = out, .run = {}}); },
               {"y has a", "overlap"});
  const RotaryFeatures features{.batch = 2, .tokens = 4, .heads = 2, .dim = 8};
  RotaryFeatures::Forward call{
      .in = {.x = in, .weight = {}}, .y = contiguous<void*>(y.data(), 4, 2, 8), .plain = out, .run = {}};
  expect_error([&] { forward(features, call); }, {"plain has a", "overlap"});
  const Modulate modulate{.batch = 2, .tokens = 4, .channels = 16};
  Modulate::Backward back{
      .in = {.x = in, .weight = {}, .bias = {}, .scale = {x.data(), DType::f32, 16, 0}, .shift = {}},
      .d_y = in,
      .d_x = contiguous<void*>(y.data(), 4, 1, 16),
      .d_weight = {},
      .d_bias = {},
      .d_scale = {y.data(), DType::f32, 0, 0},
      .d_shift = {},
      .run = {}};
  expect_error([&] { backward(modulate, back); }, {"d_scale has a batch stride of 0", "overlap"});
}

}  // namespace
}  // namespace mhla::test
