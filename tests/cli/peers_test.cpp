// Analyses within their bounds, and peers that are what they claim to be.
#include "cli/bench/peers.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "cli/analyze/run.hpp"
#include "cli/support/operator_call.hpp"

namespace mhla::cli {
namespace {

TEST(Analyze, NoRankExceedsItsBound) {
  AnalysisInput input;
  input.partition = Partition::grid({12, 12}, {3, 3});
  const auto sample = analysis::sample_tokens(input.partition, 8, 3);
  input.q = sample.q;
  input.k = sample.k;
  const Analysis result = analyze(input, [](double) {});
  EXPECT_TRUE(within_bounds(result));
  EXPECT_EQ(result.whole.size(), 3U);
  EXPECT_EQ(result.heat_maps.size(), 3U);
  Analysis wrong = result;
  wrong.curve.front().rank_bound = wrong.curve.front().values.rank - 1;
  EXPECT_FALSE(within_bounds(wrong));
}

struct PeerCase {
  const char* name;
  Masking masking;
  Normalizer normalizer;
};

class ComposedFormula : public ::testing::TestWithParam<PeerCase> {};

TEST_P(ComposedFormula, EqualsTheReferenceForwardAndBackward) {
  Problem problem;
  problem.dtype = DType::f64;
  problem.batch = 2;
  problem.heads = problem.kv_heads = 3;
  problem.key_dim = 6;
  problem.value_dim = 5;
  const bool causal = GetParam().masking != Masking::none;
  problem.partition = causal ? Partition::line(24, 6) : Partition::grid({2, 4, 6}, {1, 2, 3});
  problem.mixing_blocks = problem.partition.blocks();
  problem.options = {
      FeatureMap::relu, GetParam().normalizer, GetParam().masking, Algorithm::automatic, 0.4, 1e-6, 1e-3};
  torch::manual_seed(5);
  const torch::Tensor mixing = torch::rand({problem.mixing_blocks, problem.mixing_blocks}, torch::kFloat64);
  const Tokens tokens = random_tokens(problem, mixing, 1);
  const torch::Tensor d_o = random_output_gradient(problem, 1);
  EXPECT_LT(worst_relative_rms(bench::composed_truth(problem, tokens, d_o), run_reference(problem, tokens, d_o)),
            1e-10);
}

INSTANTIATE_TEST_SUITE_P(Modes, ComposedFormula,
                         ::testing::Values(PeerCase{"None", Masking::none, Normalizer::none},
                                           PeerCase{"Paper", Masking::none, Normalizer::paper},
                                           PeerCase{"Authors", Masking::none, Normalizer::authors},
                                           PeerCase{"BlockCausal", Masking::block_causal, Normalizer::none},
                                           PeerCase{"TokenCausal", Masking::token_causal, Normalizer::none},
                                           PeerCase{"TokenCausalPaper", Masking::token_causal, Normalizer::paper}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Peers, BlockOrderComesBack) {
  const Partition partition = Partition::grid({4, 6, 10}, {2, 3, 5});
  const torch::Tensor x = torch::randn({2, 240, 3, 4});
  const torch::Tensor ordered = bench::to_block_order(x, partition);
  EXPECT_TRUE(torch::equal(bench::from_block_order(ordered, partition), x));
  const auto order = partition.block_order();
  for (const std::size_t place : {0UL, 17UL, 239UL})
    EXPECT_TRUE(torch::equal(ordered.select(1, static_cast<std::int64_t>(place)), x.select(1, order[place])));
}

TEST(Peers, RaggedBlocksAreRefused) {
  EXPECT_THROW(bench::to_block_order(torch::randn({1, 10, 1, 4}), Partition::line(10, 4)), Error);
}

}  // namespace
}  // namespace mhla::cli
