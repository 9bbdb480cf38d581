// What a model reads of windows of tokens, and what it is asked for.
#include "tasks/language/language_batch.hpp"

#include <gtest/gtest.h>

#include "nn/linear_cross_entropy.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kBegin = 9;

data::TokenBatch two_windows() { return {2, 7, {9, 1, 2, 9, 3, 4, 9, 5, 6, 7, 9, 9, 8, 1}}; }

TEST(LanguageBatch, LabelsAreTheNextTokens) {
  const LanguageBatch batch = language_batch(two_windows(), std::nullopt, at::kCPU);
  EXPECT_TRUE(at::equal(batch.ids, torch::tensor({{9, 1, 2, 9, 3, 4}, {5, 6, 7, 9, 9, 8}}, at::kLong)));
  EXPECT_TRUE(at::equal(batch.labels, torch::tensor({{1, 2, 9, 3, 4, 9}, {6, 7, 9, 9, 8, 1}}, at::kLong)));
  EXPECT_TRUE(batch.documents.empty());
}

TEST(LanguageBatch, DocumentsBeginAtTheirTokenAndWhereARowDoes) {
  EXPECT_EQ(language_batch(two_windows(), kBegin, at::kCPU).documents, (models::Lm::Documents{0, 3, 6, 9, 10, 12}));
}

// The loss of a window is that of its documents one by one.
TEST(LanguageBatch, SeparateDocumentsDoNotSeeEachOther) {
  models::LmOptions options;
  options.model = "lm_tiny";
  options.width = 32, options.depth = 3, options.heads = 2, options.vocabulary = 10;
  options.attention = {"mhla", "softmax", "gla"};
  options.block_size = 2, options.blocks = 3;
  torch::manual_seed(1);
  models::Lm model(options);
  const torch::NoGradGuard no_gradient;
  const auto loss = [&](const data::TokenBatch& windows) {
    const LanguageBatch batch = language_batch(windows, kBegin, at::kCPU);
    return nn::linear_cross_entropy(model.hidden(batch.ids, batch.documents), model.output_weight(), batch.labels,
                                    {.reduction = nn::LossReduction::sum})
        .item<double>();
  };
  double alone = 0.0;
  for (const std::vector<std::int64_t>& document :
       {std::vector<std::int64_t>{9, 1, 2, 9}, {9, 3, 4, 9}, {5, 6, 7, 9}, {9, 9}, {9, 8, 1}})
    alone += loss({1, std::ssize(document), document});
  EXPECT_NEAR(loss(two_windows()), alone, 1e-4);
}

}  // namespace
}  // namespace mhla::tasks
