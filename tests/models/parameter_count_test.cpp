// Models have as many parameters as the published ones.
#include <gtest/gtest.h>

#include "models/classifiers.hpp"
#include "models/small_model.hpp"

namespace mhla::models {
namespace {

struct Count {
  const char *model, *attention;
  std::int64_t parameters;
};

class ReferenceModel : public ::testing::TestWithParam<Count> {};

TEST_P(ReferenceModel, HasThePublishedNumberOfParameters) {
  ClassifierOptions options;
  options.model = GetParam().model;
  options.preset = "authors";
  options.attention = {GetParam().attention};
  EXPECT_EQ(testing::parameter_count(*make_classifier(options)), GetParam().parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Deit, ReferenceModel,
    ::testing::Values(Count{"deit_tiny", "mhla", 5'793'832}, Count{"deit_small", "mhla", 22'200'424},
                      Count{"deit_base", "mhla", 86'864'104}, Count{"deit_tiny", "linear", 5'709'928},
                      Count{"deit_small", "linear", 22'035'688}, Count{"deit_base", "linear", 86'537'704},
                      Count{"deit_tiny", "softmax", 5'717'416}, Count{"deit_small", "softmax", 22'050'664},
                      Count{"deit_base", "softmax", 86'567'656}),
    [](const auto& info) { return std::string(info.param.model) + "_" + info.param.attention; });

INSTANTIATE_TEST_SUITE_P(Vlt, ReferenceModel,
                         ::testing::Values(Count{"vlt_tiny", "linear", 14'897'768},
                                           Count{"vlt_small", "linear", 25'591'208},
                                           Count{"vlt_base", "linear", 48'241'288}),
                         [](const auto& info) { return std::string(info.param.model); });

TEST(PaperModel, HasTheDocumentedNumberOfParameters) {
  ClassifierOptions options;
  for (const auto& [model, parameters] :
       {std::pair{"deit_tiny", 5'777'704}, {"deit_small", 22'168'168}, {"deit_base", 86'799'592}}) {
    options.model = model;
    EXPECT_EQ(testing::parameter_count(*make_classifier(options)), parameters);
  }
}

// Tokens, and so the model, do not depend on the attention; only MHLA has mixing matrices.
TEST(PaperModel, DiffersBetweenAttentionsByTheMixingMatricesOnly) {
  ClassifierOptions options;
  const auto count = [&](const char* attention) {
    options.attention = {attention};
    return testing::parameter_count(*make_classifier(options));
  };
  EXPECT_EQ(count("softmax"), count("linear"));
  EXPECT_EQ(count("mhla"), count("linear") + 12 * 16 * 16);
}

}  // namespace
}  // namespace mhla::models
