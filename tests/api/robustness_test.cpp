// Bad arguments are refused by name before anything is written; hard numbers pass through as the formula says.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "api/operator_case.hpp"
#include "support/expect_error.hpp"

namespace mhla::test {
namespace {

Problem problem() {
  Problem p;
  p.device = test_device();
  p.batch = 1;
  p.heads = 2;
  p.kv_heads = 2;
  p.key_dim = 8;
  p.value_dim = 8;
  p.partition = Partition::line(32, 8);
  p.mixing_blocks = 4;
  return p;
}

struct BadProblem {
  const char* named;
  std::function<void(Problem&)> spoil;
};

TEST(Robustness, PlanRefusesBadProblemsByName) {
  const std::vector<BadProblem> table{
      {"batch", [](Problem& p) { p.batch = -1; }},
      {"heads", [](Problem& p) { p.heads = 0; }},
      {"kv_heads", [](Problem& p) { p.heads = 4, p.kv_heads = 3; }},
      {"kv_heads", [](Problem& p) { p.kv_heads = 0; }},
      {"key_dim", [](Problem& p) { p.key_dim = 0; }},
      {"value_dim", [](Problem& p) { p.value_dim = -8; }},
      {"value_dim", [](Problem& p) { p.value_dim = 1 << 20; }},
      {"scale", [](Problem& p) { p.options.scale = std::nan(""); }},
      {"eps", [](Problem& p) { p.options.eps = INFINITY; }},
      {"feature_eps", [](Problem& p) { p.options.feature_eps = -INFINITY; }},
      {"mixing", [](Problem& p) { p.mixing_blocks = 5; }},
      {"mixing", [](Problem& p) { p.mixing_blocks = 3, p.options.masking = Masking::token_causal; }},
      {"partition",
       [](Problem& p) { p.partition = Partition::grid({8, 4}, {2, 2}), p.options.masking = Masking::token_causal; }},
      {"normalizer",
       [](Problem& p) { p.options.normalizer = Normalizer::authors, p.options.masking = Masking::token_causal; }},
      {"cu_seqlens", [](Problem& p) { p.cu_seqlens = {0, 40}; }},
      {"cu_seqlens", [](Problem& p) { p.cu_seqlens = {0, 20, 10, 32}; }},
      {"cu_seqlens", [](Problem& p) { p.cu_seqlens = {1, 32}; }},
      {"batch", [](Problem& p) { p.cu_seqlens = {0, 32}, p.batch = 2; }},
      {"initial_tokens", [](Problem& p) { p.initial_tokens = 8; }},
      {"initial_tokens", [](Problem& p) { p.initial_tokens = -8; }},
      {"initial_tokens", [](Problem& p) { p.initial_tokens = 3, p.options.masking = Masking::block_causal; }},
      {"q_den", [](Problem& p) { p.separate_denominator = true, p.options.normalizer = Normalizer::none; }},
      {"algorithm",
       [](Problem& p) { p.options.normalizer = Normalizer::authors, p.options.algorithm = Algorithm::dense; }},
      {"batch",
       [](Problem& p) {
         p.batch = std::int64_t{1} << 40, p.partition = Partition::line(std::int64_t{1} << 40, std::int64_t{1} << 38);
       }},
  };
  for (const auto& [named, spoil] : table) {
    Problem p = problem();
    spoil(p);
    expect_error([&] { (void)plan(p); }, {named});
  }
  expect_error([&] { (void)plan(problem(), -1); }, {"threads"});
}

struct BadCall {
  const char* named;
  std::function<void(OperatorCase&, ForwardArgs&)> spoil;
};

#ifndef MHLA_TEST_CUDA
TEST(Robustness, PlanRefusesADeviceThisBuildCannotRunOn) {
  Problem p = problem();
  p.device = Device::cuda;
  expect_error([&] { (void)plan(p); }, {"device is cuda", "cpu"});
  EXPECT_EQ(device_count(Device::cuda), 0);
  EXPECT_EQ(device_count(Device::cpu), 1);
}
#endif

TEST(Robustness, ForwardRefusesBadPointersByNameAndWritesNothing) {
  const std::vector<BadCall> table{
      {"q", [](OperatorCase&, ForwardArgs& a) { a.in.q.data = nullptr; }},
      {"k", [](OperatorCase&, ForwardArgs& a) { a.in.k.data = nullptr; }},
      {"v", [](OperatorCase&, ForwardArgs& a) { a.in.v.data = nullptr; }},
      {"mixing", [](OperatorCase&, ForwardArgs& a) { a.in.mixing = nullptr; }},
      {"mixing[1][2]", [](OperatorCase& c, ForwardArgs&) { c.mixing.set(6, std::nan("")); }},
      {"mixing[3][3]", [](OperatorCase& c, ForwardArgs&) { c.mixing.set(15, INFINITY); }},
      {"q_den", [](OperatorCase&, ForwardArgs& a) { a.in.q_den = a.in.q; }},
      {"initial.S", [](OperatorCase&, ForwardArgs& a) { a.in.initial.S = a.in.mixing; }},
      {"final_state.S", [](OperatorCase&, ForwardArgs& a) { a.final_state.S = a.o.data; }},
      {"token stride", [](OperatorCase&, ForwardArgs& a) { a.o.token_stride = 4; }},
      {"workspace_bytes", [](OperatorCase&, ForwardArgs& a) { a.run.workspace_bytes -= 1; }},
      {"workspace", [](OperatorCase&, ForwardArgs& a) { a.run.workspace = nullptr; }},
      {"workspace",
       [](OperatorCase&, ForwardArgs& a) { a.run.workspace = static_cast<std::byte*>(a.run.workspace) + 4; }},
      {"stream", [](OperatorCase&, ForwardArgs& a) { a.run.stream = a.run.workspace; }},
      {"kept", [](OperatorCase&, ForwardArgs& a) { a.kept = a.run.workspace; }},
  };
  for (const auto& [named, spoil] : table) {
    OperatorCase c(problem(), 1);
    c.problem.device = Device::cpu;
    c.problem.options.algorithm = Algorithm::summary;
    const Plan plan = mhla::plan(c.problem);
    const PoisonedWorkspace workspace(plan.forward_workspace());
    Outputs out = c.empty_outputs();
    ForwardArgs args = c.forward_args(out);
    args.run = {workspace.data(), workspace.bytes(), nullptr, nullptr};
    spoil(c, args);
    expect_error([&] { forward(plan, args); }, {named});
    for (std::int64_t i = 0; i < out.o.elements(); ++i) ASSERT_TRUE(std::isnan(out.o.get(i))) << named;
  }
}

TEST(Robustness, BackwardRefusesBadPointersByName) {
  OperatorCase c(problem(), 1);
  c.problem.device = Device::cpu;
  const Plan plan = mhla::plan(c.problem);
  const PoisonedWorkspace workspace(plan.backward_workspace());
  const TokenTensor o = c.forward().o;
  const auto refuse = [&](const char* named, const std::function<void(BackwardArgs&)>& spoil) {
    Gradients g = c.empty_gradients();
    BackwardArgs args = c.backward_args(o, g);
    args.run = {workspace.data(), workspace.bytes(), nullptr, nullptr};
    spoil(args);
    expect_error([&] { backward(plan, args); }, {named});
    EXPECT_TRUE(std::isnan(g.q.get(0)));
  };
  refuse("d_o", [](BackwardArgs& a) { a.d_o.data = nullptr; });
  refuse("o", [](BackwardArgs& a) { a.o.data = nullptr; });
  refuse("d_q", [](BackwardArgs& a) { a.d_q.data = nullptr; });
  refuse("d_k", [](BackwardArgs& a) { a.d_k.data = nullptr; });
  refuse("d_v", [](BackwardArgs& a) { a.d_v.data = nullptr; });
  refuse("head stride", [](BackwardArgs& a) { a.d_v.head_stride = 0; });
  refuse("d_initial.S", [](BackwardArgs& a) { a.d_initial.S = a.d_q.data; });
  refuse("d_final.S", [](BackwardArgs& a) { a.d_final.S = a.d_q.data; });
  refuse("workspace_bytes", [](BackwardArgs& a) { a.run.workspace_bytes = 0; });
  refuse("kept", [](BackwardArgs& a) { a.kept = a.run.workspace; });
}

TEST(Robustness, NoTokensNoBatchNothingToDo) {
  for (const std::int64_t tokens : {0, 5})
    for (const std::int64_t batch : {0, 2}) {
      Problem p = problem();
      p.batch = batch;
      p.partition = Partition::line(tokens, 8);
      p.mixing_blocks = p.partition.blocks();
      const OperatorCase c(p, 1);
      const Outputs out = c.forward();
      const Gradients g = c.backward(out.o);
      for (const double d : g.mixing.values()) EXPECT_TRUE(std::isfinite(d));
    }
  Problem p = problem();
  p.partition = Partition::line(0, 8);
  p.options.masking = Masking::token_causal;
  p.initial_tokens = 11;
  const OperatorCase c(p, 2, 0, true);
  EXPECT_EQ(c.forward().S.values(), c.S0.values());
  EXPECT_EQ(c.backward(c.forward().o).S.values(), c.d_S.values());
}

TEST(Robustness, AFutureBlockNeverReachesAnEarlierOneEvenAsNaN) {
  for (const auto masking : {Masking::block_causal, Masking::token_causal}) {
    Problem p = problem();
    p.partition = Partition::line(160, 8);
    p.mixing_blocks = 20;
    p.options.masking = masking;
    OperatorCase c(p, 3);
    const auto clean = c.forward().o;
    for (std::int64_t t = 80; t < 160; ++t)
      for (std::int64_t e = 0; e < 16; ++e) {
        c.k.set(t * 16 + e, std::nan(""));
        c.v.set(t * 16 + e, INFINITY);
      }
    const auto dirty = c.forward().o;
    for (std::int64_t i = 0; i < 80 * 16; ++i) ASSERT_EQ(dirty.get(i), clean.get(i)) << i;
  }
}

// On the CPU a token of the same block, of the same tile of tokens even; on CUDA one of another block.
TEST(Robustness, AFutureTokenNeverReachesAnEarlierOneEvenAsNaN) {
  constexpr std::int64_t kTokens = 600, kPoisoned = 333, kBlock = 150;
  const bool by_block = test_device() == Device::cuda;
  const std::int64_t before = by_block ? kPoisoned / kBlock * kBlock : kPoisoned;
  const std::int64_t after = by_block ? before + kBlock : kPoisoned + 1;
  for (const Algorithm algorithm : {Algorithm::summary, Algorithm::dense})
    for (const Normalizer normalizer : {Normalizer::none, Normalizer::paper}) {
      Problem p = problem();
      p.value_dim = 11;
      p.partition = Partition::line(kTokens, kBlock);
      p.options.masking = Masking::token_causal;
      p.options.algorithm = algorithm;
      p.options.normalizer = normalizer;
      const OperatorCase clean(p, 3);
      const TokenTensor o = clean.forward().o;
      const Gradients g = clean.backward(o);
      const auto spoil = [](TokenTensor& x, double value) {
        const std::int64_t row = x.heads * x.dim;
        for (std::int64_t e = 0; e < row; ++e) x.set(kPoisoned * row + e, value);
      };
      const auto expect_same = [&](const TokenTensor& now, const TokenTensor& before, std::int64_t begin,
                                   std::int64_t end, const char* what) {
        const std::int64_t row = now.heads * now.dim;
        for (std::int64_t i = begin * row; i < end * row; ++i)
          ASSERT_EQ(now.get(i), before.get(i)) << what << " of token " << i / row << ", " << describe(p);
      };

      OperatorCase keys = clean;
      spoil(keys.k, std::nan(""));
      spoil(keys.v, INFINITY);
      const TokenTensor dirty = keys.forward().o;
      expect_same(dirty, o, 0, before, "o");
      EXPECT_TRUE(std::isnan(dirty.get(kPoisoned * p.heads * p.value_dim)));
      expect_same(keys.backward(dirty).q, g.q, 0, before, "d_q");

      OperatorCase queries = clean;
      spoil(queries.q, std::nan(""));
      spoil(queries.d_o, INFINITY);
      const Gradients late = queries.backward(queries.forward().o);
      expect_same(late.k, g.k, after, kTokens, "d_k");
      expect_same(late.v, g.v, after, kTokens, "d_v");
    }
}

TEST(Robustness, InfinityAndNaNComeThroughInsteadOfBeingHidden) {
  OperatorCase c(problem(), 4);
  c.v.set(0, INFINITY);
  bool seen = false;
  const Outputs out = c.forward();
  for (const double x : out.o.values()) seen = seen || !std::isfinite(x);
  EXPECT_TRUE(seen);
  OperatorCase d(problem(), 5);
  d.k.set(0, std::nan(""));
  seen = false;
  for (const double x : d.forward().o.values()) seen = seen || std::isnan(x);
  EXPECT_TRUE(seen);
}

TEST(Robustness, ZeroFeaturesGiveZeroOutputThanksToEps) {
  for (const auto normalizer : {Normalizer::paper, Normalizer::authors}) {
    Problem p = problem();
    p.options.normalizer = normalizer;
    OperatorCase c(p, 6);
    c.q.fill([] { return -1.0; });
    const Outputs out = c.forward();
    for (const double x : out.o.values()) EXPECT_EQ(x, 0.0);
    const Gradients gradients = c.backward(out.o);
    for (const double x : gradients.k.values()) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(Robustness, AZeroDenominatorDividesAsIeeeSays) {
  Problem p = problem();
  p.options.eps = 0;
  OperatorCase c(p, 7);
  c.q.fill([] { return -1.0; });
  for (const double x : c.forward().o.values()) EXPECT_TRUE(std::isnan(x));
}

// z~ is 102,400 and q . z~ eight times that; the largest half is 65,504.
TEST(Robustness, SumsBeyondTheLargestHalfKeepTheirRatioOnACpu) {
  for (const Masking masking : {Masking::none, Masking::token_causal})
    for (const Algorithm algorithm : {Algorithm::summary, Algorithm::dense}) {
      Problem p = problem();
      p.device = Device::cpu;
      p.dtype = DType::f16;
      p.partition = Partition::line(1024, 512);
      p.mixing_blocks = 2;
      p.options.masking = masking;
      p.options.algorithm = algorithm;
      OperatorCase c(p, 9);
      c.q.fill([] { return 1.0; });
      c.k.fill([] { return 100.0; });
      c.v.fill([] { return 0.5; });
      c.mixing.fill([] { return 1.0; });
      for (const double x : c.forward().o.values()) ASSERT_EQ(x, 0.5) << describe(p);
    }
}

TEST(Robustness, DenormalInputsKeepTheirAccuracy) {
  Problem p = problem();
  p.dtype = DType::f64;
  p.options.normalizer = Normalizer::none;
  OperatorCase c(p, 8);
  c.v.fill([] { return 4e-310; });
  EXPECT_LE(relative_rms(c.forward().o.values(), c.reference_forward().o.values()), 1e-3);
  for (const double x : c.forward().o.values()) EXPECT_NE(x, 0.0);
}

}  // namespace
}  // namespace mhla::test
