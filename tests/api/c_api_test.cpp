// The C interface gives the results of the C++ interface, and turns every failure into a status and a message.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "mhla/attention.hpp"
#include "mhla/mhla.h"
#include "mhla/mixing.hpp"
#include "mhla/version.hpp"

namespace mhla {
namespace {

void expect_refused(mhla_status status, std::string_view mention) {
  EXPECT_EQ(status, MHLA_BAD_ARGUMENT);
  EXPECT_NE(std::string_view(mhla_last_error()).find(mention), std::string_view::npos)
      << "'" << mhla_last_error() << "' does not mention '" << mention << "'";
}

std::vector<float> random_values(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

constexpr std::int64_t kTokens = 160, kHeads = 2, kKeyDim = 8, kValueDim = 6, kBlock = 32, kBlocks = 5;

// The same small causal call for both interfaces.
struct Fixture {
  std::vector<float> q = random_values(kTokens * kHeads * kKeyDim, 1);
  std::vector<float> k = random_values(kTokens * kHeads * kKeyDim, 2);
  std::vector<float> v = random_values(kTokens * kHeads * kValueDim, 3);
  std::vector<float> d_o = random_values(kTokens * kHeads * kValueDim, 4);
  std::vector<float> mixing;

  Fixture() {
    const std::vector<double> values = mixing_init(Partition::line(kTokens, kBlock), MixingInit::running_mean);
    mixing.assign(values.begin(), values.end());
  }

  mhla_problem c_problem() const {
    mhla_problem problem = mhla_default_problem();
    problem.heads = problem.kv_heads = kHeads;
    problem.key_dim = kKeyDim;
    problem.value_dim = kValueDim;
    problem.mixing_blocks = kBlocks;
    problem.options.masking = MHLA_MASKING_TOKEN_CAUSAL;
    problem.options.feature_eps = 0.01;
    EXPECT_EQ(mhla_partition_line(kTokens, kBlock, &problem.partition), MHLA_OK);
    return problem;
  }
  Problem problem() const {
    Problem problem;
    problem.heads = problem.kv_heads = kHeads;
    problem.key_dim = kKeyDim;
    problem.value_dim = kValueDim;
    problem.mixing_blocks = kBlocks;
    problem.options.masking = Masking::token_causal;
    problem.options.feature_eps = 0.01;
    problem.partition = Partition::line(kTokens, kBlock);
    return problem;
  }
  mhla_inputs c_inputs() const {
    mhla_inputs in{};
    in.q = mhla_const_contiguous(q.data(), kTokens, kHeads, kKeyDim);
    in.k = mhla_const_contiguous(k.data(), kTokens, kHeads, kKeyDim);
    in.v = mhla_const_contiguous(v.data(), kTokens, kHeads, kValueDim);
    in.mixing = mixing.data();
    return in;
  }
  Inputs inputs() const {
    Inputs in;
    in.q = contiguous<const void*>(q.data(), kTokens, kHeads, kKeyDim);
    in.k = contiguous<const void*>(k.data(), kTokens, kHeads, kKeyDim);
    in.v = contiguous<const void*>(v.data(), kTokens, kHeads, kValueDim);
    in.mixing = mixing.data();
    return in;
  }
};

using PlanHandle = std::unique_ptr<mhla_plan, decltype(&mhla_plan_destroy)>;
using StateHandle = std::unique_ptr<mhla_state, decltype(&mhla_state_destroy)>;

PlanHandle make_plan(const mhla_problem& problem) {
  mhla_plan* plan = nullptr;
  EXPECT_EQ(mhla_plan_create(&problem, 0, &plan), MHLA_OK) << mhla_last_error();
  return {plan, mhla_plan_destroy};
}

TEST(CInterface, TellsItsVersionAndInstructionSet) {
  EXPECT_EQ(std::string_view(mhla_version()), version());
  EXPECT_EQ(std::string_view(mhla_cpu_isa()), cpu_isa());
  EXPECT_EQ(mhla_cuda_device_count(), device_count(Device::cuda));
}

TEST(CInterface, RefusesUnknownDevicesAndPrecisionsByName) {
  const Fixture f;
  mhla_plan* plan = nullptr;
  mhla_problem problem = f.c_problem();
  problem.device = 7;
  EXPECT_EQ(mhla_plan_create(&problem, 0, &plan), MHLA_BAD_ARGUMENT);
  EXPECT_EQ(std::string(mhla_last_error()), "device is 7; it must be a value of its enumeration");
  problem = f.c_problem();
  problem.options.float32_products = -1;
  EXPECT_EQ(mhla_plan_create(&problem, 0, &plan), MHLA_BAD_ARGUMENT);
  EXPECT_EQ(std::string(mhla_last_error()), "options.float32_products is -1; it must be a value of its enumeration");
  EXPECT_EQ(plan, nullptr);
}

TEST(CInterface, AMatrixPerBatchRowIsOnePerHead) {
  const Fixture f;
  mhla_plan* plan = nullptr;
  mhla_problem problem = f.c_problem();
  problem.mixing_per_row = true;
  EXPECT_EQ(mhla_plan_create(&problem, 0, &plan), MHLA_BAD_ARGUMENT);
  EXPECT_TRUE(std::string(mhla_last_error()).starts_with("mixing_per_row is true while mixing_per_head is false"));
  problem.mixing_per_head = true;
  EXPECT_NE(make_plan(problem), nullptr);
}

TEST(CInterface, PartitionsAndMixingAreThoseOfCpp) {
  const std::int64_t sizes[] = {7, 10}, blocks[] = {3, 4}, extents[] = {3, 3};
  mhla_partition by_count, by_extent;
  ASSERT_EQ(mhla_partition_grid(2, sizes, blocks, &by_count), MHLA_OK);
  ASSERT_EQ(mhla_partition_by_extent(2, sizes, extents, &by_extent), MHLA_OK);
  EXPECT_EQ(by_count.blocks, 12);
  EXPECT_EQ(by_extent.blocks, 12);
  EXPECT_EQ(by_count.tokens, 70);
  EXPECT_EQ(by_count.block_capacity, 9);
  const Partition partition = Partition::grid({7, 10}, {3, 4});
  std::vector<std::int64_t> order(70), offsets(13);
  ASSERT_EQ(mhla_partition_block_order(&by_count, order.data(), offsets.data()), MHLA_OK);
  EXPECT_EQ(order, partition.block_order());
  EXPECT_EQ(offsets, partition.block_offsets());

  std::vector<double> mixing(144);
  ASSERT_EQ(mhla_mixing_init(&by_count, MHLA_MIXING_PAPER, nullptr, mixing.data()), MHLA_OK);
  EXPECT_EQ(mixing, mixing_init(partition, MixingInit::paper));
  mhla_mixing_parameters parameters = mhla_default_mixing_parameters();
  parameters.sigma = 1;
  ASSERT_EQ(mhla_mixing_init(&by_count, MHLA_MIXING_EXP, &parameters, mixing.data()), MHLA_OK);
  EXPECT_EQ(mixing, mixing_init(partition, MixingInit::exp, {.sigma = 1}));

  const std::int64_t other_sizes[] = {8, 8}, other_blocks[] = {2, 2};
  mhla_partition other;
  ASSERT_EQ(mhla_partition_grid(2, other_sizes, other_blocks, &other), MHLA_OK);
  std::vector<double> resized(16);
  ASSERT_EQ(mhla_mixing_resize(mixing.data(), &by_count, &other, resized.data()), MHLA_OK);
  EXPECT_EQ(resized, resize_mixing(mixing, partition, Partition::grid({8, 8}, {2, 2})));
  std::vector<double> extended(36);
  ASSERT_EQ(mhla_mixing_extend_causal(resized.data(), 4, 6, MHLA_BEYOND_CLAMP, extended.data()), MHLA_OK);
  EXPECT_EQ(extended, extend_causal_mixing(resized, 4, 6, BeyondTrained::clamp));

  std::vector<float> single{-1, 2, 0.5F, 0.25F};
  ASSERT_EQ(mhla_mixing_project_f32(single.data(), 2, false, 0, 1), MHLA_OK);
  EXPECT_EQ(single, (std::vector<float>{0, 1, 0.5F, 0.25F}));
  std::vector<double> twice{-1, 2, 3, 1};
  ASSERT_EQ(mhla_mixing_project_f64(twice.data(), 2, true, 0, 1), MHLA_OK);
  EXPECT_EQ(twice, (std::vector<double>{0, 1, 0.5, 0.5}));
}

TEST(CInterface, ForwardAndBackwardAreThoseOfCpp) {
  const Fixture f;
  const PlanHandle plan = make_plan(f.c_problem());
  const Plan cpp_plan = mhla::plan(f.problem());
  EXPECT_EQ(mhla_plan_algorithm(plan.get()), static_cast<mhla_algorithm>(cpp_plan.algorithm()));
  EXPECT_EQ(mhla_plan_forward_workspace(plan.get()), cpp_plan.forward_workspace());
  EXPECT_EQ(mhla_plan_backward_workspace(plan.get()), cpp_plan.backward_workspace());
  std::vector<Line> workspace(std::max(cpp_plan.forward_workspace(), cpp_plan.backward_workspace()) / 64 + 1);
  const std::size_t bytes = workspace.size() * sizeof(Line);

  std::vector<float> o(f.v.size()), cpp_o(f.v.size());
  mhla_forward_args args{};
  args.in = f.c_inputs();
  args.o = mhla_contiguous(o.data(), kTokens, kHeads, kValueDim);
  args.run = {workspace.data(), bytes, nullptr, nullptr};
  ASSERT_EQ(mhla_forward(plan.get(), &args), MHLA_OK) << mhla_last_error();
  ForwardArgs cpp_args;
  cpp_args.in = f.inputs();
  cpp_args.o = contiguous<void*>(cpp_o.data(), kTokens, kHeads, kValueDim);
  cpp_args.run = {workspace.data(), bytes, nullptr, nullptr};
  forward(cpp_plan, cpp_args);
  EXPECT_EQ(o, cpp_o);

  std::vector<float> d_q(f.q.size()), d_k(f.k.size()), d_v(f.v.size()), d_mixing(f.mixing.size());
  std::vector<float> cpp_d_q(f.q.size()), cpp_d_k(f.k.size()), cpp_d_v(f.v.size()), cpp_d_mixing(f.mixing.size());
  mhla_backward_args back{};
  back.in = f.c_inputs();
  back.o = mhla_const_contiguous(o.data(), kTokens, kHeads, kValueDim);
  back.d_o = mhla_const_contiguous(f.d_o.data(), kTokens, kHeads, kValueDim);
  back.d_q = mhla_contiguous(d_q.data(), kTokens, kHeads, kKeyDim);
  back.d_k = mhla_contiguous(d_k.data(), kTokens, kHeads, kKeyDim);
  back.d_v = mhla_contiguous(d_v.data(), kTokens, kHeads, kValueDim);
  back.d_mixing = d_mixing.data();
  back.run = {workspace.data(), bytes, nullptr, nullptr};
  ASSERT_EQ(mhla_backward(plan.get(), &back), MHLA_OK) << mhla_last_error();
  BackwardArgs cpp_back;
  cpp_back.in = f.inputs();
  cpp_back.o = contiguous<const void*>(o.data(), kTokens, kHeads, kValueDim);
  cpp_back.d_o = contiguous<const void*>(f.d_o.data(), kTokens, kHeads, kValueDim);
  cpp_back.d_q = contiguous<void*>(cpp_d_q.data(), kTokens, kHeads, kKeyDim);
  cpp_back.d_k = contiguous<void*>(cpp_d_k.data(), kTokens, kHeads, kKeyDim);
  cpp_back.d_v = contiguous<void*>(cpp_d_v.data(), kTokens, kHeads, kValueDim);
  cpp_back.d_mixing = cpp_d_mixing.data();
  cpp_back.run = {workspace.data(), bytes, nullptr, nullptr};
  backward(cpp_plan, cpp_back);
  EXPECT_EQ(d_q, cpp_d_q);
  EXPECT_EQ(d_k, cpp_d_k);
  EXPECT_EQ(d_v, cpp_d_v);
  EXPECT_EQ(d_mixing, cpp_d_mixing);
}

TEST(CInterface, SummariesAreKeptBetweenThePasses) {
  const Fixture f;
  mhla_problem problem = f.c_problem();
  problem.options.masking = MHLA_MASKING_NONE;
  const PlanHandle plan = make_plan(problem);
  const std::size_t kept_bytes = mhla_plan_kept_bytes(plan.get());
  ASSERT_GT(kept_bytes, 0);
  std::vector<Line> workspace(mhla_plan_backward_workspace(plan.get()) / 64 + 1), kept(kept_bytes / 64 + 1);
  std::vector<float> o(f.v.size());
  mhla_forward_args args{};
  args.in = f.c_inputs();
  args.o = mhla_contiguous(o.data(), kTokens, kHeads, kValueDim);
  args.run = {workspace.data(), workspace.size() * sizeof(Line), nullptr, nullptr};
  args.kept = kept.data();
  ASSERT_EQ(mhla_forward(plan.get(), &args), MHLA_OK) << mhla_last_error();

  const auto gradients = [&](const void* from) {
    std::vector<float> d_q(f.q.size()), d_k(f.k.size()), d_v(f.v.size()), d_mixing(f.mixing.size());
    mhla_backward_args back{};
    back.in = args.in;
    back.o = mhla_const_contiguous(o.data(), kTokens, kHeads, kValueDim);
    back.d_o = mhla_const_contiguous(f.d_o.data(), kTokens, kHeads, kValueDim);
    back.d_q = mhla_contiguous(d_q.data(), kTokens, kHeads, kKeyDim);
    back.d_k = mhla_contiguous(d_k.data(), kTokens, kHeads, kKeyDim);
    back.d_v = mhla_contiguous(d_v.data(), kTokens, kHeads, kValueDim);
    back.d_mixing = d_mixing.data();
    back.run = args.run;
    back.kept = from;
    EXPECT_EQ(mhla_backward(plan.get(), &back), MHLA_OK) << mhla_last_error();
    d_q.insert(d_q.end(), d_mixing.begin(), d_mixing.end());
    return d_q;
  };
  const std::vector<float> from_kept = gradients(kept.data()), again = gradients(nullptr);
  for (std::size_t e = 0; e < again.size(); ++e) EXPECT_NEAR(from_kept[e], again[e], 1e-5F * (1 + std::abs(again[e])));
}

TEST(CInterface, RunsOnAThreadPoolOfTheCaller) {
  const Fixture f;
  const PlanHandle plan = make_plan(f.c_problem());
  std::vector<Line> workspace(mhla_plan_forward_workspace(plan.get()) / 64 + 1);
  int calls = 0;
  const mhla_parallel backwards{1, &calls,
                                [](void* context, int64_t count, void (*task)(void*, int64_t), void* task_context) {
                                  ++*static_cast<int*>(context);
                                  for (int64_t i = count; i-- > 0;) task(task_context, i);
                                }};
  std::vector<float> lent(f.v.size()), own(f.v.size());
  mhla_forward_args args{};
  args.in = f.c_inputs();
  args.o = mhla_contiguous(own.data(), kTokens, kHeads, kValueDim);
  args.run = {workspace.data(), workspace.size() * sizeof(Line), nullptr, nullptr};
  ASSERT_EQ(mhla_forward(plan.get(), &args), MHLA_OK);
  args.o = mhla_contiguous(lent.data(), kTokens, kHeads, kValueDim);
  args.run.parallel = &backwards;
  ASSERT_EQ(mhla_forward(plan.get(), &args), MHLA_OK);
  EXPECT_GT(calls, 0);
  EXPECT_EQ(lent, own);
}

TEST(CInterface, StreamsLikeOneCall) {
  const Fixture f;
  const PlanHandle plan = make_plan(f.c_problem());
  std::vector<Line> workspace(mhla_plan_forward_workspace(plan.get()) / 64 + 1);
  std::vector<float> expected(f.v.size()), o(f.v.size());
  mhla_forward_args args{};
  args.in = f.c_inputs();
  args.o = mhla_contiguous(expected.data(), kTokens, kHeads, kValueDim);
  args.run = {workspace.data(), workspace.size() * sizeof(Line), nullptr, nullptr};
  ASSERT_EQ(mhla_forward(plan.get(), &args), MHLA_OK);

  mhla_state_config config = mhla_default_state_config();
  config.heads = config.kv_heads = kHeads;
  config.key_dim = kKeyDim;
  config.value_dim = kValueDim;
  config.block_size = kBlock;
  config.mixing_blocks = kBlocks;
  config.options.feature_eps = 0.01;
  mhla_state* raw = nullptr;
  ASSERT_EQ(mhla_state_create(&config, f.mixing.data(), &raw), MHLA_OK) << mhla_last_error();
  const StateHandle first(raw, mhla_state_destroy);
  ASSERT_EQ(mhla_state_prefill(first.get(), 7, args.in.q, args.in.k, args.in.v,
                               mhla_contiguous(o.data(), kTokens, kHeads, kValueDim), nullptr),
            MHLA_OK);
  EXPECT_EQ(mhla_state_tokens(first.get()), 7);
  EXPECT_GT(mhla_state_bytes(first.get()), 0U);

  std::size_t size = 0;
  ASSERT_EQ(mhla_state_serialize(first.get(), nullptr, &size), MHLA_OK);
  std::vector<std::byte> bytes(size);
  std::size_t too_small = size - 1;
  expect_refused(mhla_state_serialize(first.get(), bytes.data(), &too_small), "size is");
  ASSERT_EQ(mhla_state_serialize(first.get(), bytes.data(), &size), MHLA_OK);
  ASSERT_EQ(mhla_state_restore(bytes.data(), size, &raw), MHLA_OK);
  const StateHandle restored(raw, mhla_state_destroy);
  ASSERT_EQ(mhla_state_fork(restored.get(), &raw), MHLA_OK);
  const StateHandle fork(raw, mhla_state_destroy);

  for (std::int64_t token = 7; token < kTokens; ++token)
    ASSERT_EQ(
        mhla_state_step(fork.get(), mhla_const_contiguous(f.q.data() + token * kHeads * kKeyDim, 1, kHeads, kKeyDim),
                        mhla_const_contiguous(f.k.data() + token * kHeads * kKeyDim, 1, kHeads, kKeyDim),
                        mhla_const_contiguous(f.v.data() + token * kHeads * kValueDim, 1, kHeads, kValueDim),
                        mhla_contiguous(o.data() + token * kHeads * kValueDim, 1, kHeads, kValueDim), nullptr),
        MHLA_OK);
  EXPECT_EQ(mhla_state_tokens(fork.get()), kTokens);
  EXPECT_EQ(mhla_state_tokens(restored.get()), 7);
  double error = 0, norm = 0;
  for (std::size_t n = 0; n < o.size(); ++n) {
    error += std::pow(static_cast<double>(o[n]) - expected[n], 2);
    norm += std::pow(static_cast<double>(expected[n]), 2);
  }
  EXPECT_LT(std::sqrt(error / norm), 1e-5);
  expect_refused(mhla_state_step(fork.get(), {}, {}, {}, {}, nullptr), "q is null");
}

TEST(CInterface, BadArgumentsGiveAStatusAndAMessage) {
  mhla_partition partition;
  const std::int64_t sizes[] = {9, 9}, blocks[] = {4, 3};
  expect_refused(mhla_partition_line(-1, 4, &partition), "tokens is -1");
  expect_refused(mhla_partition_line(4, 4, nullptr), "partition is null");
  expect_refused(mhla_partition_grid(2, sizes, blocks, &partition), "nearest valid counts are 3 and 5");
  expect_refused(mhla_partition_grid(4, sizes, blocks, &partition), "axes is 4");
  expect_refused(mhla_partition_grid(2, nullptr, blocks, &partition), "sizes is null");
  expect_refused(mhla_partition_block_order(nullptr, nullptr, nullptr), "partition is null");
  ASSERT_EQ(mhla_partition_line(8, 4, &partition), MHLA_OK);
  std::vector<double> mixing(4);
  expect_refused(mhla_mixing_init(&partition, static_cast<mhla_mixing_kind>(12), nullptr, mixing.data()), "kind is 12");
  expect_refused(mhla_mixing_init(&partition, MHLA_MIXING_PAPER, nullptr, nullptr), "mixing is null");
  expect_refused(mhla_mixing_project_f64(mixing.data(), -1, false, 0, 1), "blocks is -1");
  expect_refused(mhla_set_num_threads(0), "threads is 0");

  const Fixture f;
  mhla_plan* plan = nullptr;
  mhla_problem problem = f.c_problem();
  expect_refused(mhla_plan_create(nullptr, 0, &plan), "problem is null");
  expect_refused(mhla_plan_create(&problem, 0, nullptr), "plan is null");
  expect_refused(mhla_plan_create(&problem, -1, &plan), "threads is -1");
  problem.dtype = static_cast<mhla_dtype>(9);
  expect_refused(mhla_plan_create(&problem, 0, &plan), "dtype is 9");
  problem = f.c_problem();
  problem.kv_heads = 5;
  expect_refused(mhla_plan_create(&problem, 0, &plan), "kv_heads is 5");
  problem = f.c_problem();
  problem.partition.axes = 0;
  expect_refused(mhla_plan_create(&problem, 0, &plan), "partition.axes is 0");
  EXPECT_EQ(plan, nullptr);

  mhla_forward_args args{};
  expect_refused(mhla_forward(nullptr, &args), "plan is null");
  const PlanHandle good = make_plan(f.c_problem());
  expect_refused(mhla_forward(good.get(), nullptr), "args is null");
  expect_refused(mhla_forward(good.get(), &args), "q is null");
  const mhla_parallel nobody{1, nullptr, nullptr};
  args.run.parallel = &nobody;
  expect_refused(mhla_forward(good.get(), &args), "parallel.for_each is null");

  mhla_state* state = nullptr;
  const mhla_state_config config = mhla_default_state_config();
  expect_refused(mhla_state_create(&config, nullptr, &state), "mixing_blocks is 0");
  expect_refused(mhla_state_restore("short", 5, &state), "not a saved state");
  expect_refused(mhla_state_restore(nullptr, 5, &state), "bytes is null");
  expect_refused(mhla_state_fork(nullptr, &state), "state is null");
  EXPECT_EQ(mhla_state_tokens(nullptr), -1);
  EXPECT_EQ(mhla_state_bytes(nullptr), 0U);
  EXPECT_STREQ(mhla_last_error(), "state is null");
  EXPECT_EQ(state, nullptr);
  mhla_state_destroy(nullptr);
  mhla_plan_destroy(nullptr);
}

void expect_message(std::string_view mention) {
  EXPECT_NE(std::string_view(mhla_last_error()).find(mention), std::string_view::npos) << mhla_last_error();
}

// Every pointer of every function, one after the other.
TEST(CInterface, NullPointersAreRefusedByName) {
  EXPECT_EQ(mhla_plan_algorithm(nullptr), -1);
  expect_message("plan is null");
  for (const auto getter : {mhla_plan_forward_workspace, mhla_plan_backward_workspace, mhla_plan_kept_bytes}) {
    expect_refused(mhla_partition_line(1, 0, nullptr), "block_size is 0");  // another message in between
    EXPECT_EQ(getter(nullptr), 0U);
    expect_message("plan is null");
  }
  EXPECT_EQ(mhla_state_tokens(nullptr), -1);
  expect_message("state is null");
  expect_refused(mhla_partition_line(1, 0, nullptr), "block_size is 0");
  EXPECT_EQ(mhla_state_bytes(nullptr), 0U);
  expect_message("state is null");

  const Fixture f;
  mhla_partition partition;
  ASSERT_EQ(mhla_partition_line(8, 4, &partition), MHLA_OK);
  const std::int64_t sizes[] = {8, 8}, extents[] = {4, 4};
  std::vector<double> mixing(16);
  expect_refused(mhla_partition_grid(2, sizes, nullptr, &partition), "blocks is null");
  expect_refused(mhla_partition_grid(2, sizes, extents, nullptr), "partition is null");
  expect_refused(mhla_partition_by_extent(2, nullptr, extents, &partition), "sizes is null");
  expect_refused(mhla_partition_by_extent(2, sizes, nullptr, &partition), "extents is null");
  expect_refused(mhla_partition_by_extent(2, sizes, extents, nullptr), "partition is null");
  expect_refused(mhla_mixing_init(nullptr, MHLA_MIXING_PAPER, nullptr, mixing.data()), "partition is null");
  expect_refused(mhla_mixing_project_f32(nullptr, 2, false, 0, 1), "mixing is null");
  expect_refused(mhla_mixing_project_f64(nullptr, 2, false, 0, 1), "mixing is null");
  expect_refused(mhla_mixing_resize(nullptr, &partition, &partition, mixing.data()), "mixing is null");
  expect_refused(mhla_mixing_resize(mixing.data(), nullptr, &partition, mixing.data()), "from is null");
  expect_refused(mhla_mixing_resize(mixing.data(), &partition, nullptr, mixing.data()), "to is null");
  expect_refused(mhla_mixing_resize(mixing.data(), &partition, &partition, nullptr), "resized is null");
  expect_refused(mhla_mixing_extend_causal(nullptr, 2, 3, MHLA_BEYOND_CLAMP, mixing.data()), "mixing is null");
  expect_refused(mhla_mixing_extend_causal(mixing.data(), 2, 3, MHLA_BEYOND_CLAMP, nullptr), "extended is null");

  mhla_plan* plan = nullptr;
  mhla_problem problem = f.c_problem();
  problem.cu_seqlens_count = 3;
  expect_refused(mhla_plan_create(&problem, 0, &plan), "cu_seqlens is null");
  problem.cu_seqlens = sizes;
  problem.cu_seqlens_count = 0;
  expect_refused(mhla_plan_create(&problem, 0, &plan), "cu_seqlens_count is 0");
  EXPECT_EQ(plan, nullptr);
  const PlanHandle good = make_plan(f.c_problem());
  expect_refused(mhla_backward(nullptr, nullptr), "plan is null");
  expect_refused(mhla_backward(good.get(), nullptr), "args is null");

  mhla_state_config config = mhla_default_state_config();
  config.key_dim = config.value_dim = 4;
  config.mixing_blocks = 1;
  mhla_state* raw = nullptr;
  expect_refused(mhla_state_create(nullptr, mixing.data(), &raw), "config is null");
  expect_refused(mhla_state_create(&config, nullptr, &raw), "mixing is null");
  expect_refused(mhla_state_create(&config, mixing.data(), nullptr), "state is null");
  ASSERT_EQ(mhla_state_create(&config, mixing.data(), &raw), MHLA_OK);
  const StateHandle state(raw, mhla_state_destroy);
  const mhla_const_tensor in = mhla_const_contiguous(f.q.data(), 1, 1, 4);
  std::vector<float> o(4);
  const mhla_tensor out = mhla_contiguous(o.data(), 1, 1, 4);
  std::size_t size = 0;
  expect_refused(mhla_state_prefill(nullptr, 1, in, in, in, out, nullptr), "state is null");
  expect_refused(mhla_state_prefill(state.get(), 1, in, in, in, {}, nullptr), "o is null");
  expect_refused(mhla_state_step(nullptr, in, in, in, out, nullptr), "state is null");
  expect_refused(mhla_state_step(state.get(), in, {}, in, out, nullptr), "k is null");
  expect_refused(mhla_state_fork(state.get(), nullptr), "fork is null");
  expect_refused(mhla_state_serialize(nullptr, nullptr, &size), "state is null");
  expect_refused(mhla_state_serialize(state.get(), nullptr, nullptr), "size is null");
  expect_refused(mhla_state_restore(o.data(), 1, nullptr), "state is null");
}

TEST(CInterface, SizesThatWouldWrapAroundAreRefusedByName) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const Fixture f;
  mhla_plan* plan = nullptr;
  for (const std::int64_t tokens : {kHuge, kHuge - kBlock, kHuge / 2}) {
    mhla_problem problem = f.c_problem();
    problem.initial_tokens = tokens;
    expect_refused(mhla_plan_create(&problem, 0, &plan), "initial_tokens is " + std::to_string(tokens));
  }
  mhla_problem problem = f.c_problem();
  problem.partition.extents[0] = kHuge;
  expect_refused(mhla_plan_create(&problem, 0, &plan), "blocks may have at most 2^32 tokens");
  problem = f.c_problem();
  problem.batch = kHuge;
  expect_refused(mhla_plan_create(&problem, 0, &plan), "batch is 9223372036854775807");
  problem = f.c_problem();
  expect_refused(mhla_plan_create(&problem, std::numeric_limits<int>::max(), &plan), "threads is 2147483647");
  EXPECT_EQ(plan, nullptr);

  double mixing = 1;
  expect_refused(mhla_mixing_extend_causal(&mixing, 1, std::int64_t{1} << 32, MHLA_BEYOND_CLAMP, &mixing),
                 "blocks is 4294967296");
  mhla_state_config config = mhla_default_state_config();
  config.key_dim = config.value_dim = 4;
  config.mixing_blocks = 1;
  config.block_size = std::int64_t{1} << 61;
  mhla_state* state = nullptr;
  const float one = 1;
  expect_refused(mhla_state_create(&config, &one, &state), "block_size is 2305843009213693952");
  EXPECT_EQ(state, nullptr);
  mhla_contiguous(nullptr, kHuge, kHuge, kHuge);  // strides that mean nothing, but no undefined behaviour
}

TEST(CInterface, OutputsWhoseRowsOverlapAreRefusedByName) {
  const Fixture f;
  const PlanHandle plan = make_plan(f.c_problem());
  std::vector<Line> workspace(mhla_plan_forward_workspace(plan.get()) / 64 + 1);
  std::vector<float> o(f.v.size(), 7.0F);
  mhla_forward_args args{};
  args.in = f.c_inputs();
  args.o = mhla_contiguous(o.data(), kTokens, kHeads, kValueDim);
  args.o.token_stride = kValueDim;  // that of the heads
  args.run = {workspace.data(), workspace.size() * sizeof(Line), nullptr, nullptr};
  expect_refused(mhla_forward(plan.get(), &args), "stride of 6; rows of an output must not overlap");
  EXPECT_EQ(o, std::vector<float>(o.size(), 7.0F));
}

}  // namespace
}  // namespace mhla
