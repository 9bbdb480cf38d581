// Windows: what a batch holds depends on seed, epoch and batch alone, and processes share it.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "data/tokens/windows.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::data {
namespace {

using Numbers = std::vector<std::int64_t>;

// Token i is i.
class Windows : public ::testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 107;

  Windows() {
    std::vector<Token> tokens(kTokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    write_shard(folder_ / "a.bin", std::span(tokens).first(50), 1000);
    write_shard(folder_ / "b.bin", std::span(tokens).subspan(50), 1000);
    write_token_index(
        folder_.path(),
        {.tokenizer = "0", .vocabulary = 1000, .tokens = kTokens, .shards = {{"a.bin", 50}, {"b.bin", 57}}});
    dataset_ = std::make_shared<TokenDataset>(folder_.path());
  }

  // The first tokens of the windows of each batch.
  std::vector<Numbers> epoch_of(const TokenWindowOptions& options, std::int64_t epoch, std::int64_t first = 0) const {
    TokenWindows windows(dataset_, options);
    windows.start(epoch, first);
    std::vector<Numbers> batches;
    while (const auto batch = windows.next()) {
      EXPECT_EQ(batch->length, options.length);
      EXPECT_EQ(std::ssize(batch->tokens), batch->rows * batch->length);
      Numbers& firsts = batches.emplace_back();
      for (std::int64_t row = 0; row < batch->rows; ++row) {
        firsts.push_back(batch->tokens[row * batch->length]);
        for (std::int64_t i = 0; i < batch->length; ++i)
          EXPECT_EQ(batch->tokens[row * batch->length + i], firsts.back() + i);
      }
    }
    EXPECT_EQ(std::ssize(batches), windows.batches() - first);
    return batches;
  }

  mhla::testing::TemporaryFolder folder_;
  std::shared_ptr<const TokenDataset> dataset_;
};

Numbers joined(const std::vector<Numbers>& batches) {
  Numbers all;
  for (const Numbers& batch : batches) all.insert(all.end(), batch.begin(), batch.end());
  return all;
}

TEST_F(Windows, EvaluationSeesEachOnceInOrder) {
  EXPECT_EQ(epoch_of({.length = 25, .batch = 3}, 0), (std::vector<Numbers>{{0, 25, 50}, {75}}));
  EXPECT_EQ(epoch_of({.length = 25, .batch = 3}, 7), epoch_of({.length = 25, .batch = 3}, 0));
  EXPECT_EQ(epoch_of({.length = 107, .batch = 3}, 0), (std::vector<Numbers>{{0}}));
  EXPECT_EQ(epoch_of({.length = 26, .step = 25, .batch = 2}, 0), (std::vector<Numbers>{{0, 25}, {50, 75}}));
  EXPECT_EQ(epoch_of({.length = 107 - 3, .step = 1, .batch = 4}, 0), (std::vector<Numbers>{{0, 1, 2, 3}}));
}

TEST_F(Windows, TrainingSeesEachAtMostOnceInAnOrderOfItsOwn) {
  const TokenWindowOptions options{.length = 5, .batch = 4, .train = true, .seed = 3};
  Numbers all = joined(epoch_of(options, 0));
  EXPECT_EQ(all.size(), 20U);  // of 21 windows
  EXPECT_FALSE(std::ranges::is_sorted(all));
  EXPECT_NE(all, joined(epoch_of(options, 1)));
  TokenWindowOptions other = options;
  other.seed = 4;
  EXPECT_NE(all, joined(epoch_of(other, 0)));
  EXPECT_EQ(all, joined(epoch_of(options, 0)));
  std::ranges::sort(all);
  EXPECT_EQ(std::ranges::adjacent_find(all), all.end());
}

TEST_F(Windows, AnEpochResumesAtAnyBatch) {
  const TokenWindowOptions options{.length = 5, .batch = 4, .train = true, .seed = 3};
  const std::vector<Numbers> whole = epoch_of(options, 2);
  for (std::int64_t first = 0; first <= std::ssize(whole); ++first)
    EXPECT_EQ(epoch_of(options, 2, first), std::vector<Numbers>(whole.begin() + first, whole.end()));
}

TEST_F(Windows, ProcessesShareEachBatchInOrder) {
  for (const bool train : {true, false}) {
    TokenWindowOptions options{.length = 5, .batch = 6, .train = train, .seed = 1};
    const std::vector<Numbers> whole = epoch_of(options, 1);
    std::vector<Numbers> together(whole.size());
    options.world = 3;
    for (options.rank = 0; options.rank < 3; ++options.rank) {
      const std::vector<Numbers> part = epoch_of(options, 1);
      ASSERT_EQ(part.size(), whole.size());
      for (std::size_t b = 0; b < whole.size(); ++b)
        together[b].insert(together[b].end(), part[b].begin(), part[b].end());
    }
    EXPECT_EQ(together, whole);
  }
}

TEST_F(Windows, ABatchLargerThanTheSplitIsTheSplit) {
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(epoch_of({.length = 5, .batch = kLargest}, 0), epoch_of({.length = 5, .batch = 21}, 0));
  EXPECT_EQ(epoch_of({.length = 5, .step = kLargest, .batch = 1}, 0), (std::vector<Numbers>{{0}}));
}

TEST_F(Windows, ImpossibleOptionsAreRefusedByName) {
  const auto refused = [&](const TokenWindowOptions& options, const char* what) {
    expect_error([&] { TokenWindows(dataset_, options); }, {what});
  };
  refused({.length = 0}, "length is 0; it may be 1 to 107");
  refused({.length = 108}, "length is 108");
  refused({.length = 5, .step = -1}, "step is -1");
  refused({.length = 5, .batch = 0}, "batch is 0");
  refused({.length = 5, .batch = 5, .world = 2}, "batch is 5; it may be a multiple of the 2 processes");
  refused({.length = 5, .batch = 4, .rank = 2, .world = 2}, "rank is 2; it may be 0 to 1");
  refused({.length = 5, .batch = std::int64_t{1} << 62, .world = std::int64_t{1} << 62},
          "world is 4611686018427387904; it may be 1 to 1048576");
  refused({.length = 5, .batch = 22, .train = true}, "batch is 22; it may be at most the 21 windows");
  TokenWindows windows(dataset_, {.length = 5, .batch = 4});
  EXPECT_FALSE(windows.next().has_value());
  expect_error([&] { windows.start(-1); }, {"epoch is -1"});
  expect_error([&] { windows.start(0, 7); }, {"first_batch is 7; it may be 0 to 6"});
}

}  // namespace
}  // namespace mhla::data
