// What all classifiers have in common.
#include <gtest/gtest.h>

#include "models/classifiers.hpp"
#include "models/small_model.hpp"

namespace mhla::models {
namespace {

TEST(Classifiers, LearnTheirMixingFromImagesTooSmallForTheirBlocks) {
  ClassifierOptions options = testing::small_options();
  options.blocks = {8, 8};
  for (const char* model : {"deit_tiny", "vlt_tiny"}) {
    options.model = model;
    if (options.model == "vlt_tiny") options.patch = ClassifierOptions{}.patch;
    const auto classifier = make_classifier(options);
    testing::shake(*classifier);
    classifier->forward(testing::images(2, 12, 16)).square().sum().backward();
    for (std::int64_t layer = 0; layer < classifier->layers(); ++layer) {
      const at::Tensor mixing = classifier->mixing_parameter(layer);
      EXPECT_TRUE(!mixing.defined() || mixing.grad().abs().max().item<double>() > 0.0) << model << ", layer " << layer;
    }
  }
}

TEST(Classifiers, LogitsAreTheLastLayerOfThePooledFeatures) {
  ClassifierOptions options = testing::small_options();
  for (const char* model : {"deit_tiny", "vlt_tiny"}) {
    options.model = model;
    if (options.model == "vlt_tiny") options.patch = ClassifierOptions{}.patch;
    const auto classifier = make_classifier(options);
    testing::shake(*classifier);
    classifier->eval();
    const at::Tensor images = testing::images(3, 32, 32), features = classifier->pooled_features(images);
    const auto parameters = classifier->named_parameters();
    const at::Tensor weight = parameters["head.weight"].flatten(1);
    ASSERT_EQ(features.sizes(), (std::vector<std::int64_t>{3, weight.size(1)})) << model;
    EXPECT_LT(testing::relative_error(classifier->forward(images), features.mm(weight.t()) + parameters["head.bias"]),
              1e-6)
        << model;
  }
}

TEST(Classifiers, OnlyMixingAndPositionsAreFreeOfDecayByName) {
  const auto model = make_classifier(testing::small_options());
  for (const auto& item : model->named_parameters()) {
    const bool is_free = item.key() == "pos_embed" || is_mixing(item.key());
    EXPECT_EQ(model->decays(item.key()), !is_free) << item.key();
  }
}

TEST(Classifiers, AStepLeavesMixingBetweenZeroAndOne) {
  const auto model = make_classifier(testing::small_options());
  {
    const torch::NoGradGuard no_gradient;
    for (const at::Tensor& mixing : model->mixing_matrices()) mixing.copy_(at::linspace(-1.0, 2.0, 16).view({4, 4}));
  }
  model->after_step();
  for (const at::Tensor& mixing : model->mixing_matrices())
    EXPECT_TRUE(at::equal(mixing, at::linspace(-1.0, 2.0, 16).view({4, 4}).clamp(0.0, 1.0)));
}

TEST(Classifiers, TheOldNameOfThePresetIsRead) {
  const auto options = io::Json{{"preset", "reference"}}.get<ClassifierOptions>();
  EXPECT_EQ(options.preset, "authors");
  EXPECT_EQ(io::Json(options).at("preset"), "authors");
}

}  // namespace
}  // namespace mhla::models
