// How likely tokens are: packed, streamed and shared as from the logits of each sequence.
#include <gtest/gtest.h>

#include "support/expect_error.hpp"
#include "support/small_language_model.hpp"
#include "tasks/language/continuation.hpp"
#include "tasks/language/likelihood.hpp"

namespace mhla::tasks {
namespace {

using mhla::testing::small_language_model;
using mhla::testing::small_language_options;
using Ids = std::vector<std::int64_t>;

Ids random_tokens(std::int64_t count, std::uint64_t seed) {
  const at::Tensor ids = torch::randint(0, 260, {count}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong);
  return {ids.data_ptr<std::int64_t>(), ids.data_ptr<std::int64_t>() + count};
}

// By the definition, from the logits of the whole sequence.
Likelihood directly(models::Lm& model, const ScoredTokens& sequence) {
  const torch::NoGradGuard no_gradient;
  const at::Tensor ids = torch::tensor(Ids(sequence.tokens.begin(), sequence.tokens.end())).unsqueeze(0);
  const at::Tensor log_likelihood = model.forward(ids)[0].to(at::kDouble).log_softmax(1);
  Likelihood result;
  for (std::int64_t i = sequence.from; i < ids.size(1); ++i) {
    const std::int64_t token = ids[0][i].item<std::int64_t>();
    result.tokens.push_back(log_likelihood[i - 1][token].item<double>());
    result.greedy = result.greedy && log_likelihood[i - 1].argmax().item<std::int64_t>() == token;
  }
  return result;
}

void expect_equal(const Likelihood& result, const Likelihood& expected) {
  ASSERT_EQ(result.tokens.size(), expected.tokens.size());
  for (std::size_t i = 0; i < expected.tokens.size(); ++i) EXPECT_NEAR(result.tokens[i], expected.tokens[i], 2e-5) << i;
  EXPECT_EQ(result.greedy, expected.greedy);
}

TEST(Likelihood, IsThatOfTheLogitsForEveryAttention) {
  for (const char* attention : {"softmax", "linear", "gla", "mhla"}) {
    const LanguageModel model = small_language_model(small_language_options({attention}));
    std::vector<Ids> texts;
    std::vector<ScoredTokens> sequences;
    for (const std::int64_t size : {2, 40, 17, 90, 3, 64}) texts.push_back(random_tokens(size, 7 + texts.size()));
    for (const Ids& text : texts) sequences.push_back({text, 1 + std::ssize(text) / 3});
    for (const std::int64_t tokens_at_once : {10000, 50, 16}) {
      const auto results = likelihoods(*model.model, sequences, tokens_at_once);
      ASSERT_EQ(results.size(), sequences.size());
      for (std::size_t i = 0; i < sequences.size(); ++i) {
        SCOPED_TRACE(::testing::Message() << attention << ", sequence " << i << ", at once " << tokens_at_once);
        expect_equal(results[i], directly(*model.model, sequences[i]));
      }
    }
  }
}

// The likeliest tokens after a text, and one of them replaced.
TEST(Likelihood, GreedyIsTheLikeliestContinuationAlone) {
  const LanguageModel model = small_language_model();
  const torch::NoGradGuard no_gradient;
  Ids tokens = random_tokens(5, 3);
  for (int i = 0; i < 4; ++i)
    tokens.push_back(model.model->forward(torch::tensor(tokens).unsqueeze(0))[0][-1].argmax().item<std::int64_t>());
  const auto greedy = [&](std::int64_t from) {
    return likelihoods(*model.model, std::vector<ScoredTokens>{{tokens, from}})[0].greedy;
  };
  EXPECT_TRUE(greedy(5));
  tokens[6] = (tokens[6] + 1) % 260;
  EXPECT_FALSE(greedy(5));
}

TEST(Likelihood, GroupsThatBeginAlikeAreAsEachSequenceAlone) {
  for (const char* attention : {"softmax", "gla", "mhla"}) {
    const LanguageModel model = small_language_model(small_language_options({attention}));
    std::vector<std::vector<Ids>> texts;
    for (const std::int64_t common : {0, 1, 12, 12, 35, 12}) {
      std::vector<Ids>& group = texts.emplace_back();
      for (std::int64_t choice = 0; choice < 3; ++choice) {
        Ids text = random_tokens(common, 100 + static_cast<std::uint64_t>(common));
        const Ids own = random_tokens(2 + 3 * choice, 200 + texts.size() * 10 + static_cast<std::uint64_t>(choice));
        text.insert(text.end(), own.begin(), own.end());
        group.push_back(text);
      }
    }
    std::vector<std::vector<ScoredTokens>> groups;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      auto& group = groups.emplace_back();
      const std::int64_t common = std::ssize(texts[i][0]) - 2;
      for (const Ids& text : texts[i]) group.push_back({text, std::max<std::int64_t>(1, common)});
    }
    for (const std::int64_t tokens_at_once : {10000, 20}) {
      std::int64_t done = 0, all = 0;
      const auto results =
          likelihoods_of_groups(*model.model, groups, tokens_at_once, [&](std::int64_t tokens) { done += tokens; });
      for (std::size_t i = 0; i < groups.size(); ++i)
        for (std::size_t k = 0; k < groups[i].size(); ++k) {
          SCOPED_TRACE(::testing::Message() << attention << ", group " << i << ", choice " << k);
          expect_equal(results[i][k], directly(*model.model, groups[i][k]));
          all += std::ssize(groups[i][k].tokens) - 1;
        }
      EXPECT_EQ(done, all);
    }
  }
}

TEST(Likelihood, WrongInputsAreNamed) {
  const LanguageModel model = small_language_model();
  const Ids tokens = {1, 2, 3};
  const auto score = [&](const Ids& ids, std::int64_t from, std::int64_t at_once) {
    static_cast<void>(likelihoods(*model.model, std::vector<ScoredTokens>{{ids, from}}, at_once));
  };
  expect_error([&] { score(tokens, 0, 10); }, {"from is 0 of 3 tokens"});
  expect_error([&] { score(tokens, 3, 10); }, {"from is 3 of 3 tokens"});
  expect_error([&] { score(tokens, 1, 0); }, {"tokens_at_once is 0"});
  expect_error([&] { score({260, 1}, 1, 10); }, {"token 260", "0 to 259"});
  expect_error([&] { score({1, -1}, 1, 10); }, {"token -1"});
}

TEST(Continuation, IsCutAsTheHarnessCutsIt) {
  const auto tokenizer = small_language_model().tokenizer;
  const std::int64_t begin = 259;
  const auto ids = [&](std::string_view text) {
    const auto tokens = tokenizer->encode(text);
    Ids result = {begin};
    result.insert(result.end(), tokens.begin(), tokens.end());
    return result;
  };
  const Continuation plain = continuation_of(*tokenizer, "the", " the");
  EXPECT_EQ(plain.tokens, ids("the the"));
  EXPECT_EQ(plain.from, 2);
  const Continuation moved = continuation_of(*tokenizer, "the  \n", "the");  // white space goes with what follows
  EXPECT_EQ(moved.tokens, ids("the  \nthe"));
  EXPECT_EQ(moved.from, 2);
  EXPECT_EQ(continuation_of(*tokenizer, "", "the").from, 1);
  EXPECT_EQ(continuation_of(*tokenizer, " ", "the").from, 1);
  const Continuation merged = continuation_of(*tokenizer, "t", "hem");  // "th" is one token over the border
  EXPECT_EQ(merged.tokens, ids("them"));
  EXPECT_EQ(merged.from, 2);
  const Continuation shortened = continuation_of(*tokenizer, "aaaaaaaa", "bb", 5);  // four before, two after
  EXPECT_EQ(shortened.tokens, (Ids{tokenizer->encode("a")[0], tokenizer->encode("a")[0], tokenizer->encode("a")[0],
                                   tokenizer->encode("a")[0], tokenizer->encode("b")[0], tokenizer->encode("b")[0]}));
  EXPECT_EQ(shortened.from, 4);
  EXPECT_TRUE(shortened.shortened);
  EXPECT_FALSE(plain.shortened);
  expect_error([&] { static_cast<void>(continuation_of(*tokenizer, "the", "")); }, {"\"the\" has no token of its own"});
  expect_error([&] { static_cast<void>(continuation_of(*tokenizer, "a", "bbbb", 3)); }, {"4 tokens", "takes 3"});
}

}  // namespace
}  // namespace mhla::tasks
