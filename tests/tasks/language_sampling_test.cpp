// Drawing tokens: every option does what it says, and a draw depends on its own sequence alone.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "support/expect_error.hpp"
#include "tasks/language/sampling.hpp"

namespace mhla::tasks {
namespace {

constexpr double kOut = -std::numeric_limits<double>::infinity();
const std::vector<float> kLogits = {0.0F, 2.0F, -1.0F, 1.0F, 0.5F};

// How often each token is drawn in this many positions.
std::vector<double> shares(const std::vector<float>& logits, const SamplingOptions& options, int draws = 4000,
                           const std::vector<std::int64_t>& before = {}) {
  std::vector<double> result(logits.size());
  for (int position = 0; position < draws; ++position)
    result[static_cast<std::size_t>(sample_token(
        logits, options, {.sequence = 3, .position = static_cast<std::uint64_t>(position)}, before))] += 1.0 / draws;
  return result;
}

std::vector<double> softmax(const std::vector<double>& scores) {
  double sum = 0.0;
  for (const double score : scores) sum += std::exp(score);
  std::vector<double> result;
  for (const double score : scores) result.push_back(std::exp(score) / sum);
  return result;
}

void expect_shares(const std::vector<double>& found, const std::vector<double>& scores) {
  const std::vector<double> expected = softmax(scores);
  for (std::size_t id = 0; id < expected.size(); ++id) {
    EXPECT_NEAR(found[id], expected[id], 0.03) << id;
    if (expected[id] == 0.0) EXPECT_EQ(found[id], 0.0) << id;
  }
}

TEST(TokenSampling, FollowsTheSoftmaxOfTheLogits) { expect_shares(shares(kLogits, {}), {0.0, 2.0, -1.0, 1.0, 0.5}); }

TEST(TokenSampling, TemperatureDividesTheLogits) {
  expect_shares(shares(kLogits, {.temperature = 0.5}), {0.0, 4.0, -2.0, 2.0, 1.0});
  expect_shares(shares(kLogits, {.temperature = 1e-320}), {kOut, 2.0, kOut, kOut, kOut});
  expect_shares(shares(kLogits, {.temperature = 1e300}), {0.0, 0.0, 0.0, 0.0, 0.0});
}

TEST(TokenSampling, TemperatureZeroTakesTheMostLikelyAndOfEqualsTheFirst) {
  EXPECT_EQ(sample_token(kLogits, {.temperature = 0.0}, {}), 1);
  EXPECT_EQ(sample_token(std::vector{1.0F, 3.0F, 3.0F}, {.temperature = 0.0}, {}), 1);
  EXPECT_EQ(sample_token(kLogits, {.top_k = 1}, {}), 1);
}

TEST(TokenSampling, TopKKeepsTheMostLikely) {
  expect_shares(shares(kLogits, {.top_k = 2}), {kOut, 2.0, kOut, 1.0, kOut});
  expect_shares(shares(kLogits, {.top_k = 99}), {0.0, 2.0, -1.0, 1.0, 0.5});
}

// Probabilities are 0.083, 0.61, 0.030, 0.225 and 0.136 times 0.92.
TEST(TokenSampling, TopPKeepsTheFewestThatReachIt) {
  expect_shares(shares(kLogits, {.top_p = 0.5}), {kOut, 2.0, kOut, kOut, kOut});
  expect_shares(shares(kLogits, {.top_p = 0.75}), {kOut, 2.0, kOut, 1.0, kOut});
  expect_shares(shares(kLogits, {.top_p = 1e-9}), {kOut, 2.0, kOut, kOut, kOut});
}

TEST(TokenSampling, MinPKeepsWhatIsLikelyEnough) {
  expect_shares(shares(kLogits, {.min_p = 0.3}), {kOut, 2.0, kOut, 1.0, kOut});
  expect_shares(shares(kLogits, {.min_p = 1.0}), {kOut, 2.0, kOut, kOut, kOut});
}

TEST(TokenSampling, RepeatedTokensArePenalisedOnce) {
  expect_shares(shares(kLogits, {.repetition_penalty = 2.0}, 4000, {1, 2, 1, 77, -5}), {0.0, 1.0, -2.0, 1.0, 0.5});
}

TEST(TokenSampling, TokensOfMinusInfinityAreNeverDrawn) {
  std::vector<float> logits = kLogits;
  logits[1] = logits[3] = -INFINITY;
  expect_shares(shares(logits, {}), {0.0, kOut, -1.0, kOut, 0.5});
  logits.assign(5, -INFINITY);
  expect_error([&] { sample_token(logits, {}, {}); }, {"none to draw"});
  logits[2] = NAN;
  expect_error([&] { sample_token(logits, {}, {}); }, {"nan for token 2"});
}

TEST(TokenSampling, ADrawDependsOnSeedSequenceAndPositionAlone) {
  torch::manual_seed(1);
  const at::Tensor logits = torch::randn({6, 100});
  std::vector<SequencePlace> places;
  for (std::uint64_t row = 0; row < 6; ++row) places.push_back({.sequence = row, .position = 10 + row});
  const std::vector<SamplingOptions> options = {{.temperature = 1.5, .seed = 7}};
  const at::Tensor together = sample_tokens(logits, options, places);
  for (std::int64_t row = 0; row < 6; ++row) {
    const std::vector<SequencePlace> place = {places[static_cast<std::size_t>(row)]};
    EXPECT_EQ(sample_tokens(logits.narrow(0, row, 1), options, place).item<std::int64_t>(),
              together[row].item<std::int64_t>());
  }
  const std::vector<float> equal(1000, 0.0F);
  const auto drawn = [&](std::uint64_t seed, std::uint64_t sequence, std::uint64_t position) {
    return sample_token(equal, {.seed = seed}, {.sequence = sequence, .position = position});
  };
  EXPECT_EQ(drawn(1, 2, 3), drawn(1, 2, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(2, 2, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(1, 3, 3));
  EXPECT_NE(drawn(1, 2, 3), drawn(1, 2, 4));
}

TEST(TokenSampling, RowsMayHaveOptionsOfTheirOwn) {
  const at::Tensor logits = torch::tensor(kLogits).repeat({2, 1});
  const std::vector<SamplingOptions> options = {{.temperature = 0.0}, {.repetition_penalty = 9.0, .temperature = 0.0}};
  const std::vector<SequencePlace> places(2);
  const at::Tensor ids = sample_tokens(logits, options, places, {{}, {1}});
  EXPECT_EQ(ids[0].item<std::int64_t>(), 1);
  EXPECT_EQ(ids[1].item<std::int64_t>(), 3);
  expect_error([&] { sample_tokens(logits, options, std::span(places).first(1)); }, {"places 1"});
}

TEST(TokenSampling, WrongOptionsAreNamed) {
  const auto refused = [](const SamplingOptions& options, std::string_view name) {
    expect_error([&] { check(options); }, {name});
  };
  refused({.repetition_penalty = 0.0}, "repetition_penalty is 0");
  refused({.temperature = -1.0}, "temperature is -1");
  refused({.temperature = NAN}, "temperature is nan");
  refused({.top_k = -1}, "top_k is -1");
  refused({.top_p = 0.0}, "top_p is 0");
  refused({.min_p = 1.5}, "min_p is 1.5");
}

}  // namespace
}  // namespace mhla::tasks
