// Recall: documents that are answerable, and scores of models that answer or do not.
#include <gtest/gtest.h>

#include <map>

#include "data/tokens/recall.hpp"
#include "support/expect_error.hpp"
#include "support/small_language_model.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/language/needle.hpp"
#include "tasks/language/recall.hpp"
#include "tasks/language/text_documents.hpp"

namespace mhla::tasks {
namespace {

using data::RecallDocument;
using data::RecallDocuments;
using mhla::testing::small_language_model;

TEST(RecallDocuments, AskOnceForEveryKeyTheySaid) {
  const auto tokenizer = small_language_model().tokenizer;
  const RecallDocuments documents(*tokenizer, 100, 20, 3);
  EXPECT_EQ(documents.pair_counts(), (std::vector<std::int64_t>{4, 8, 16, 20}));
  for (const std::int64_t pairs : documents.pair_counts()) {
    const RecallDocument document = documents.document(7, pairs);
    EXPECT_EQ(document.tokens.size(), 100U);
    EXPECT_EQ(document.tokens[0], 259);
    std::map<std::int64_t, std::int64_t> said;
    for (std::int64_t i = 0; i < pairs; ++i)
      said[document.tokens[static_cast<std::size_t>(2 * i + 1)]] = document.tokens[static_cast<std::size_t>(2 * i + 2)];
    EXPECT_EQ(std::ssize(said), pairs);  // keys differ
    ASSERT_EQ(std::ssize(document.asked), pairs);
    std::int64_t before = 2 * pairs;
    for (const RecallDocument::Asked& asked : document.asked) {
      const auto place = static_cast<std::size_t>(asked.place);
      EXPECT_GT(asked.place, before);
      before = asked.place;
      const auto key = said.find(document.tokens[place - 1]);
      ASSERT_NE(key, said.end());
      EXPECT_EQ(document.tokens[place], key->second);
      EXPECT_EQ(document.tokens[place - static_cast<std::size_t>(asked.distance)], key->second);
      said.erase(key);
    }
    EXPECT_TRUE(said.empty());
  }
}

TEST(RecallDocuments, DependOnSeedAndNumberAlone) {
  const auto tokenizer = small_language_model().tokenizer;
  const RecallDocuments documents(*tokenizer, 64, 8, 3), other(*tokenizer, 64, 8, 4);
  EXPECT_EQ(documents.document(5).tokens, RecallDocuments(*tokenizer, 64, 8, 3).document(5).tokens);
  EXPECT_NE(documents.document(5).tokens, documents.document(6).tokens);
  EXPECT_NE(documents.document(5).tokens, other.document(5).tokens);
}

TEST(RecallDocuments, AreWrittenAsASplitOfTokens) {
  const mhla::testing::TemporaryFolder folder;
  const auto tokenizer = small_language_model().tokenizer;
  const RecallDocuments documents(*tokenizer, 64, 8, 3);
  const data::TokenIndex index = data::write_recall_documents(*tokenizer, documents, 5, folder / "train", 100);
  EXPECT_EQ(index.documents, 5);
  EXPECT_EQ(index.tokens, 5 * 64);
  const auto read = text_documents(*tokenizer, {(folder / "train").string()});
  ASSERT_EQ(read.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(read[i].tokens, documents.document(i).tokens);
  expect_error([&] { data::write_recall_documents(*tokenizer, documents, 5, folder / "train", 100); },
               {"train: exists already"});
}

TEST(RecallDocuments, WrongSizesAreNamed) {
  const auto tokenizer = small_language_model().tokenizer;
  expect_error([&] { RecallDocuments(*tokenizer, 64, 3, 0); }, {"pairs are 3; at least 4"});
  expect_error([&] { RecallDocuments(*tokenizer, 64, 16, 0); }, {"length is 64", "16 pairs", "65"});
  expect_error([&] { RecallDocuments(*tokenizer, 10000, 130, 0); }, {"pairs are 130", "259 tokens", "enough for 129"});
  EXPECT_EQ(std::ssize(RecallDocuments(*tokenizer, 10000, 129, 0).document(0, 129).asked), 129);
}

// A model that knows nothing guesses; the same options give the same numbers, in batches of any size.
TEST(Recall, AModelThatKnowsNothingGuesses) {
  const LanguageModel model = small_language_model();
  RecallOptions options{.lengths = {128, 256}, .most_pairs = 16, .documents = 12, .needles = 3};
  const Recall result = recall(model, options);
  ASSERT_EQ(result.pairs.size(), 6U);
  EXPECT_EQ(result.pairs[2].pairs, 16);
  for (const PairsScore& row : result.pairs) {
    EXPECT_EQ(row.score.exact.values, 12 * row.pairs);
    EXPECT_LT(row.score.exact.mean, 0.15);
    EXPECT_NEAR(row.score.chosen.mean, row.chance(), 0.25);
    EXPECT_GE(row.score.chosen.mean, row.score.exact.mean);
  }
  std::int64_t asked = 0;
  for (const DistanceScore& row : result.distances) asked += row.score.exact.values;
  EXPECT_EQ(asked, 12 * 2 * (4 + 8 + 16));
  ASSERT_EQ(result.needles.size(), 10U);
  for (const NeedleScore& row : result.needles) EXPECT_EQ(row.score.chosen.values, 3);
  options.tokens_at_once = 200;
  const Recall again = recall(model, options);
  for (std::size_t i = 0; i < result.pairs.size(); ++i)
    EXPECT_EQ(again.pairs[i].score.chosen.mean, result.pairs[i].score.chosen.mean);
}

TEST(Recall, LengthsThatTheModelDoesNotTakeAreRefused) {
  models::LmOptions small = mhla::testing::small_language_options();
  small.beyond = "error";
  const LanguageModel model = small_language_model(small);  // four blocks of eight tokens
  expect_error([&] { static_cast<void>(recall(model, {.lengths = {128}})); },
               {"128", "trained for 32 tokens", "--beyond"});
  expect_error([&] { static_cast<void>(recall(model, {.lengths = {127}})); }, {"127", "at least 128"});
  expect_error([&] { static_cast<void>(recall(model, {})); }, {"recall needs 128 tokens"});
  expect_error([&] { static_cast<void>(recall(small_language_model(), {.lengths = {128}, .documents = 0})); },
               {"documents are 0"});
  EXPECT_TRUE(default_recall_lengths(*model.model).empty());
  EXPECT_EQ(default_recall_lengths(*small_language_model().model), (std::vector<std::int64_t>{256, 512, 1024, 2048}));
}

TEST(Needle, LiesAtItsDepthInATextOfItsLength) {
  const auto tokenizer = small_language_model().tokenizer;
  for (const double depth : {0.0, 0.5, 1.0}) {
    const Needle needle = make_needle(*tokenizer, 1000, depth, 1, 2);
    const auto tokens = std::ssize(tokenizer->encode(needle.context));
    EXPECT_LE(tokens, 1000 - 2);
    EXPECT_GT(tokens, 1000 - 80);  // less than a sentence is missing
    const std::size_t place = needle.context.find(kNeedleWords[needle.right]);
    ASSERT_NE(place, std::string::npos);
    EXPECT_NEAR(static_cast<double>(place) / static_cast<double>(needle.context.size()), depth, 0.1);
    EXPECT_TRUE(needle.context.ends_with(" is"));
  }
  expect_error([&] { make_needle(*tokenizer, 20, 0.5, 1, 2); }, {"length is 20", "need"});
}

}  // namespace
}  // namespace mhla::tasks
