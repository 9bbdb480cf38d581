// Rank and entropy of a classifier's attention.
#include "models/base/attention_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "models/classifiers.hpp"
#include "models/small_model.hpp"

namespace mhla::models {
namespace {

using testing::images;
using testing::small_options;

std::vector<LayerStatistics> statistics_of(const char* attention) {
  torch::manual_seed(1);
  ClassifierOptions options = small_options();
  options.attention = {attention};
  const auto model = make_classifier(options);
  const auto result = attention_statistics(*model, images(2, 32, 32));
  EXPECT_TRUE(model->is_training()) << "the mode of the model has changed";
  return result;
}

// 64 tokens in 4 blocks of 16, 8 channels per head.
TEST(AttentionStatistics, RanksKeepTheirBounds) {
  for (const LayerStatistics& layer : statistics_of("linear")) EXPECT_LE(layer.rank, 8.0);
  for (const LayerStatistics& layer : statistics_of("mhla")) {
    EXPECT_GT(layer.rank, 8.0) << "no higher than linear attention's";
    EXPECT_LE(layer.rank, 32.0);
  }
  for (const LayerStatistics& layer : statistics_of("softmax")) EXPECT_GT(layer.rank, 32.0);
}

TEST(AttentionStatistics, HaveALinePerLayer) {
  const auto layers = statistics_of("mhla");
  ASSERT_EQ(layers.size(), 2U);
  for (const LayerStatistics& layer : layers) {
    EXPECT_EQ(layer.tokens, 64);
    EXPECT_GT(layer.entropy, 0.0);
    EXPECT_LE(layer.entropy, std::log(64.0));
    EXPECT_LE(layer.effective_rank, layer.rank + 1e-9);
  }
  EXPECT_DOUBLE_EQ(mean_over_layers(layers).entropy, (layers[0].entropy + layers[1].entropy) / 2.0);
}

// Queries and keys of zero look everywhere alike.
TEST(AttentionStatistics, UniformAttentionHasRankOneAndTheEntropyOfAllTokens) {
  ClassifierOptions options = small_options();
  options.attention = {"softmax"};
  const auto model = make_classifier(options);
  {
    const torch::NoGradGuard no_gradient;
    for (auto& item : model->named_parameters())
      if (item.key().ends_with("q_norm.weight")) item.value().zero_();
  }
  for (const LayerStatistics& layer : attention_statistics(*model, images(1, 32, 32))) {
    EXPECT_DOUBLE_EQ(layer.rank, 1.0);
    EXPECT_NEAR(layer.entropy, std::log(64.0), 1e-9);
  }
}

}  // namespace
}  // namespace mhla::models
