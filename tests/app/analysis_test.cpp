// Ranks, entropies and attention matrices that are known beforehand, and peers that are what they claim to be.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "analysis/attention_matrix.hpp"
#include "cli/analyze/run.hpp"
#include "cli/bench/peers.hpp"
#include "cli/support/operator_call.hpp"
#include "mhla/mixing.hpp"

namespace mhla::cli {
namespace {

using analysis::statistics;

TEST(Statistics, OfTheIdentityAreFullRankAndNoEntropy) {
  const auto values = statistics(torch::eye(20, torch::kFloat64));
  EXPECT_EQ(values.rank, 20);
  EXPECT_NEAR(values.effective_rank, 20.0, 1e-9);
  EXPECT_NEAR(values.entropy, 0.0, 1e-12);
  EXPECT_NEAR(values.sparsity, 0.95, 1e-12);
}

TEST(Statistics, OfTheUniformMatrixAreRankOneAndFullEntropy) {
  const auto values = statistics(torch::full({16, 16}, 1.0 / 16, torch::kFloat64));
  EXPECT_EQ(values.rank, 1);
  EXPECT_NEAR(values.effective_rank, 1.0, 1e-6);
  EXPECT_NEAR(values.entropy, std::log(16.0), 1e-12);
  EXPECT_EQ(values.sparsity, 0.0);
}

TEST(AttentionMatrix, RanksAreThoseOfTheTheory) {
  const Partition partition = Partition::grid({12, 12}, {3, 3});
  const auto sample = analysis::sample_tokens(partition, 8, 3);
  const torch::Tensor mixing = to_matrix(mixing_init(partition, MixingInit::paper));
  EXPECT_EQ(statistics(analysis::linear_matrix(sample.q, sample.k)).rank, 8);
  EXPECT_EQ(analysis::rank_bound(partition, 8), 72);
  const auto mixed = statistics(analysis::mhla_matrix(sample.q, sample.k, mixing, partition)).rank;
  EXPECT_LE(mixed, 72);
  EXPECT_GT(mixed, 8);
}

TEST(AttentionMatrix, BlockLocalAttentionOfRandomTokensReachesTheBound) {
  const Partition partition = Partition::grid({12, 12}, {3, 3});
  torch::manual_seed(4);
  const torch::Tensor q = torch::randn({144, 8}, torch::kFloat64);
  const torch::Tensor k = torch::randn({144, 8}, torch::kFloat64);
  EXPECT_EQ(statistics(analysis::mhla_matrix(q, k, torch::eye(9, torch::kFloat64), partition)).rank, 72);
}

TEST(AttentionMatrix, TheBoundCountsSmallBlocksByTheirTokens) {
  EXPECT_EQ(analysis::rank_bound(Partition::line(10, 4), 3), 3 + 3 + 2);
}

TEST(AttentionMatrix, RowsSumToOne) {
  const Partition partition = Partition::line(30, 7);
  const auto sample = analysis::sample_tokens(partition, 6, 5);
  const torch::Tensor mixing = to_matrix(mixing_init(partition, MixingInit::paper));
  for (const torch::Tensor& matrix :
       {analysis::softmax_matrix(sample.q, sample.k), analysis::linear_matrix(sample.q, sample.k),
        analysis::mhla_matrix(sample.q, sample.k, mixing, partition)})
    EXPECT_LT((matrix.sum(1) - 1).abs().max().item<double>(), 1e-12);
}

TEST(AttentionMatrix, TimesValuesIsTheOperator) {
  const Partition partition = Partition::grid({5, 7}, {2, 3});
  const auto sample = analysis::sample_tokens(partition, 8, 7);
  Problem problem;
  problem.dtype = DType::f64;
  problem.key_dim = problem.value_dim = 8;
  problem.partition = partition;
  problem.mixing_blocks = partition.blocks();
  problem.options.eps = 0.0;
  problem.options.feature_eps = 1e-6;
  const auto tokens = [](const torch::Tensor& x) { return x.reshape({1, x.size(0), 1, x.size(1)}); };
  const torch::Tensor mixing = to_matrix(mixing_init(partition, MixingInit::paper));
  const torch::Tensor o = run_reference(problem, {tokens(sample.q), tokens(sample.k), tokens(sample.v), mixing}).o;
  const torch::Tensor matrix = analysis::mhla_matrix(sample.q, sample.k, mixing, partition);
  EXPECT_LT(relative_rms(torch::matmul(matrix, sample.v), o.reshape({35, 8})), 1e-12);
}

TEST(AttentionMatrix, WrongShapesAreErrors) {
  const Partition partition = Partition::line(8, 4);
  const torch::Tensor q = torch::randn({8, 4});
  EXPECT_THROW(analysis::linear_matrix(q, torch::randn({8, 5})), Error);
  EXPECT_THROW(analysis::mhla_matrix(q, q, torch::eye(3), partition), Error);
  EXPECT_THROW(analysis::mhla_matrix(torch::randn({9, 4}), torch::randn({9, 4}), torch::eye(2), partition), Error);
}

TEST(SampleTokens, AreTheSameForEqualSeeds) {
  const Partition partition = Partition::grid({4, 4}, {2, 2});
  const auto a = analysis::sample_tokens(partition, 5, 9);
  const auto b = analysis::sample_tokens(partition, 5, 9);
  const auto c = analysis::sample_tokens(partition, 5, 10);
  EXPECT_TRUE(torch::equal(a.q, b.q) && torch::equal(a.k, b.k) && torch::equal(a.v, b.v));
  EXPECT_FALSE(torch::equal(a.q, c.q));
}

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
