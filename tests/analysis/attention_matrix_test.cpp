// Ranks, entropies and attention matrices that are known beforehand.
#include "analysis/attention_matrix.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>

#include "mhla/torch.hpp"
#include "support/relative_error.hpp"

namespace mhla::analysis {
namespace {

torch::Tensor paper_mixing(const Partition& partition) {
  return mixing_tensor(partition, MixingInit::paper, {}, torch::kDouble);
}

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
  const auto sample = sample_tokens(partition, 8, 3);
  const torch::Tensor mixing = paper_mixing(partition);
  EXPECT_EQ(statistics(linear_matrix(sample.q, sample.k)).rank, 8);
  EXPECT_EQ(rank_bound(partition, 8), 72);
  const auto mixed = statistics(mhla_matrix(sample.q, sample.k, mixing, partition)).rank;
  EXPECT_LE(mixed, 72);
  EXPECT_GT(mixed, 8);
}

TEST(AttentionMatrix, BlockLocalAttentionOfRandomTokensReachesTheBound) {
  const Partition partition = Partition::grid({12, 12}, {3, 3});
  torch::manual_seed(4);
  const torch::Tensor q = torch::randn({144, 8}, torch::kFloat64);
  const torch::Tensor k = torch::randn({144, 8}, torch::kFloat64);
  EXPECT_EQ(statistics(mhla_matrix(q, k, torch::eye(9, torch::kFloat64), partition)).rank, 72);
}

TEST(AttentionMatrix, TheBoundCountsSmallBlocksByTheirTokens) {
  EXPECT_EQ(rank_bound(Partition::line(10, 4), 3), 3 + 3 + 2);
}

TEST(AttentionMatrix, RowsSumToOne) {
  const Partition partition = Partition::line(30, 7);
  const auto sample = sample_tokens(partition, 6, 5);
  const torch::Tensor mixing = paper_mixing(partition);
  for (const torch::Tensor& matrix : {softmax_matrix(sample.q, sample.k), linear_matrix(sample.q, sample.k),
                                      mhla_matrix(sample.q, sample.k, mixing, partition)})
    EXPECT_LT((matrix.sum(1) - 1).abs().max().item<double>(), 1e-12);
}

TEST(AttentionMatrix, TimesValuesIsTheOperator) {
  const Partition partition = Partition::grid({5, 7}, {2, 3});
  const auto sample = sample_tokens(partition, 8, 7);
  const auto tokens = [](const torch::Tensor& x) { return x.reshape({1, x.size(0), 1, x.size(1)}); };
  const torch::Tensor mixing = paper_mixing(partition);
  const torch::Tensor o = attention(tokens(sample.q), tokens(sample.k), tokens(sample.v), mixing,
                                    {.partition = partition, .eps = 0.0, .feature_eps = 1e-6});
  const torch::Tensor matrix = mhla_matrix(sample.q, sample.k, mixing, partition);
  EXPECT_LT(mhla::testing::relative_error(torch::matmul(matrix, sample.v), o.reshape({35, 8})), 1e-12);
}

TEST(AttentionMatrix, WrongShapesAreErrors) {
  const Partition partition = Partition::line(8, 4);
  const torch::Tensor q = torch::randn({8, 4});
  EXPECT_THROW(linear_matrix(q, torch::randn({8, 5})), Error);
  EXPECT_THROW(mhla_matrix(q, q, torch::eye(3), partition), Error);
  EXPECT_THROW(mhla_matrix(torch::randn({9, 4}), torch::randn({9, 4}), torch::eye(2), partition), Error);
}

TEST(AttentionMatrix, WithoutFiniteWeightsHasNoStatistics) {
  const torch::Tensor uniform = torch::full({4, 4}, 0.25, torch::kDouble);
  EXPECT_EQ(statistics(uniform).rank, 1);
  for (const double wrong : {std::nan(""), static_cast<double>(INFINITY), -0.25}) {
    torch::Tensor matrix = uniform.clone();
    matrix[1][2] = wrong;
    EXPECT_THROW(statistics(matrix), Error) << wrong;
  }
}

TEST(SampleTokens, AreTheSameForEqualSeeds) {
  const Partition partition = Partition::grid({4, 4}, {2, 2});
  const auto a = sample_tokens(partition, 5, 9);
  const auto b = sample_tokens(partition, 5, 9);
  const auto c = sample_tokens(partition, 5, 10);
  EXPECT_TRUE(torch::equal(a.q, b.q) && torch::equal(a.k, b.k) && torch::equal(a.v, b.v));
  EXPECT_FALSE(torch::equal(a.q, c.q));
}

}  // namespace
}  // namespace mhla::analysis
