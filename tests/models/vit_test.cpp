// Vision transformers: every attention, any size, and what must not change the result.
#include "models/vit/vit.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "mhla/torch.hpp"
#include "models/classifiers.hpp"
#include "models/small_model.hpp"
#include "nn/drop_path.hpp"

namespace mhla::models {
namespace {

using testing::images;
using testing::relative_error;
using testing::small_options;

std::vector<at::Tensor> gradients(Classifier& model, const at::Tensor& input) {
  model.zero_grad();
  model.forward(input).square().sum().backward();
  std::vector<at::Tensor> result;
  for (const auto& parameter : model.parameters()) result.push_back(parameter.grad());
  return result;
}

class EveryVit : public ::testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  ClassifierOptions options() const {
    ClassifierOptions result = small_options();
    result.preset = std::get<0>(GetParam());
    result.attention = {std::get<1>(GetParam())};
    return result;
  }
};

TEST_P(EveryVit, TrainsAllItsParameters) {
  torch::manual_seed(1);
  const auto model = make_classifier(options());
  testing::shake(*model);
  const at::Tensor logits = model->forward(images(3, 32, 32));
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({3, 5}));
  logits.square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    // Softmax does not see a bias of k, which shifts all its scores alike.
    if (item.key().find("qkv.bias") != std::string::npos) continue;
    EXPECT_GT(item.value().grad().abs().max().item<double>(), 0.0) << item.key();
  }
}

TEST_P(EveryVit, TakesImagesOfOtherSizes) {
  torch::manual_seed(2);
  const auto model = make_classifier(options());
  testing::shake(*model);
  for (const auto& [height, width] : {std::pair{32, 32}, {20, 48}, {33, 5}, {1, 1}, {64, 40}}) {
    const at::Tensor logits = model->forward(images(2, height, width));
    EXPECT_TRUE(logits.isfinite().all().item<bool>()) << height << " x " << width;
  }
}

TEST_P(EveryVit, ABatchIsItsImages) {
  torch::manual_seed(3);
  const auto model = make_classifier(options());
  testing::shake(*model);
  const at::Tensor input = images(3, 32, 32), together = model->forward(input);
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_LT(relative_error(model->forward(input.slice(0, i, i + 1))[0], together[i]), 1e-5);
}

// A row is zero where a query has no positive feature in common with any key.
TEST_P(EveryVit, AttentionMatricesHaveRowsOfSumOne) {
  torch::manual_seed(4);
  const auto model = make_classifier(options());
  testing::shake(*model);
  const at::Tensor matrix = model->attention_matrix(images(2, 32, 32), 1);
  const std::int64_t tokens = matrix.size(3);
  EXPECT_GE(tokens, 64);
  EXPECT_EQ(matrix.sizes(), at::IntArrayRef({2, 3, tokens, tokens}));
  const at::Tensor sums = matrix.sum(-1);
  EXPECT_LT((sums * (sums - 1.0)).abs().max().item<double>(), 1e-5);
  EXPECT_GT(sums.mean().item<double>(), 0.95);
  EXPECT_THROW(model->attention_matrix(images(1, 32, 32), 2), Error);
}

TEST_P(EveryVit, RecomputationChangesNoGradient) {
  ClassifierOptions with = options();
  with.recompute = true;
  torch::manual_seed(5);
  const auto plain = make_classifier(options());
  torch::manual_seed(5);
  const auto recomputing = make_classifier(with);
  const auto expected = gradients(*plain, images(2, 32, 32)), found = gradients(*recomputing, images(2, 32, 32));
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Vit, EveryVit,
                         ::testing::Combine(::testing::Values("paper", "authors"),
                                            ::testing::Values("softmax", "linear", "mhla")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

TEST(Vit, RecomputationKnowsTheAutocastOfTheForwardPass) {
  ClassifierOptions options = small_options();
  const auto under_autocast = [&](bool recompute) {
    options.recompute = recompute;
    torch::manual_seed(5);
    const auto model = make_classifier(options);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    const at::Tensor loss = model->forward(images(2, 32, 32)).square().sum();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    loss.backward();
    at::autocast::clear_cache();
    std::vector<at::Tensor> result;
    for (const auto& parameter : model->parameters()) result.push_back(parameter.grad());
    return result;
  };
  const auto expected = under_autocast(false), found = under_autocast(true);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(found[i].defined()) << i;
    EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
  }
}

TEST(Vit, LayersMayDifferInAttention) {
  for (const char* preset : {"paper", "authors"}) {
    ClassifierOptions options = small_options();
    options.preset = preset;
    options.depth = 3;
    options.attention = {"softmax", "mhla", "linear"};
    const auto model = make_classifier(options);
    testing::shake(*model);
    EXPECT_TRUE(model->forward(images(2, 32, 32)).isfinite().all().item<bool>());
    EXPECT_EQ(model->mixing_matrices().size(), 1U);
    EXPECT_TRUE(model->named_parameters().contains("blocks.1.attn.piece_attn.conv.weight"));
  }
}

// One layer of MHLA by the definition: the matrix of weights times v.
TEST(Vit, TheAttentionMatrixIsWhatTheLayerApplies) {
  torch::manual_seed(6);
  for (const char* kind : {"softmax", "linear", "mhla"}) {
    nn::GridAttentionOptions options{
        .dim = 24, .heads = 3, .kind = nn::parse_attention_kind(kind), .partition = Partition::grid({7, 5}, {2, 3})};
    options.lepe_side = 0;
    options.mixing = torch::rand({6, 6});
    nn::GridAttention layer(options);
    const at::Tensor x = torch::randn({2, 35, 24});
    const auto parameters = layer.named_parameters();
    const at::Tensor v =
        at::linear(x, parameters["to_qkv.weight"]).unflatten(-1, {3, 3, 8}).select(2, 2).transpose(1, 2);
    const at::Tensor o = at::matmul(layer.weights(x, {7, 5}).to(at::kFloat), v).transpose(1, 2).flatten(2);
    const at::Tensor expected = at::linear(o, parameters["to_out.0.weight"], parameters["to_out.0.bias"]);
    EXPECT_LT(relative_error(layer.forward(x, {7, 5}).sum(), expected), 1e-5) << kind;
  }
}

// With equal weights for all blocks, MHLA is linear attention.
TEST(Vit, UniformMixingIsLinearAttention) {
  ClassifierOptions options = small_options();
  options.mixing_init = "uniform";
  torch::manual_seed(7);
  const auto mhla = make_classifier(options);
  options.attention = {"linear"};
  const auto linear = make_classifier(options);
  const torch::NoGradGuard no_gradient;
  const auto from = mhla->named_parameters();
  for (auto& item : linear->named_parameters()) item.value().copy_(from[item.key()]);
  const at::Tensor input = images(2, 28, 36);
  EXPECT_LT(relative_error(mhla->forward(input), linear->forward(input)), 1e-5);
}

TEST(Vit, DropsBranchesInTrainingOnly) {
  ClassifierOptions options = small_options();
  options.drop_path = 0.9;
  const auto model = make_classifier(options);
  testing::shake(*model);
  const at::Tensor input = images(1, 32, 32).expand({16, -1, -1, -1});
  EXPECT_GT(model->forward(input).std(0).max().item<double>(), 1e-3);
  model->eval();
  EXPECT_LT(model->forward(input).std(0).max().item<double>(), 1e-4);
}

TEST(Vit, DroppedBranchesKeepTheirMean) {
  const at::Tensor factors = nn::drop_path_factors(0.4, 3, torch::zeros({40000, 1}), true);
  EXPECT_EQ(factors.sizes(), at::IntArrayRef({3, 2, 40000}));
  EXPECT_LT((factors.mean(-1) - 1.0).abs().max().item<double>(), 0.03);
  EXPECT_TRUE(factors[0].eq(1.0).all().item<bool>());
  EXPECT_NEAR(factors[2].eq(0.0).to(at::kDouble).mean().item<double>(), 0.4, 0.02);
}

TEST(Vit, FrozenMixingIsNotTrained) {
  ClassifierOptions options = small_options();
  options.mixing_frozen = true;
  const auto model = make_classifier(options);
  EXPECT_TRUE(model->mixing_matrices().empty());
  EXPECT_FALSE(model->named_parameters()["blocks.0.attn.piece_attn.conv.weight"].requires_grad());
}

TEST(Vit, ProjectingTheMixingMatricesChangesTheParameters) {
  const auto model = make_classifier(small_options());
  const at::Tensor parameter = model->named_parameters()["blocks.1.attn.piece_attn.conv.weight"];
  {
    const torch::NoGradGuard no_gradient;
    parameter.fill_(3.0);
  }
  for (const at::Tensor& mixing : model->mixing_matrices()) project_mixing_(mixing);
  EXPECT_EQ(parameter.max().item<double>(), 1.0);
}

TEST(Vit, MixingByInputLearnsHowMuchTheInputCounts) {
  ClassifierOptions options = small_options();
  options.mixing = "input";
  const auto model = make_classifier(options);
  testing::shake(*model);
  model->forward(images(2, 32, 32)).square().sum().backward();
  const at::Tensor tau = model->named_parameters()["blocks.0.attn.piece_attn.tau"];
  EXPECT_GT(tau.grad().abs().max().item<double>(), 0.0);
  EXPECT_TRUE(model->attention_matrix(images(1, 32, 32), 1).isfinite().all().item<bool>());
}

TEST(ClassifierOptions, SurviveJson) {
  ClassifierOptions options = small_options();
  options.attention = {"softmax", "mhla"};
  options.drop_path = 0.25;
  options.mixing_frozen = true;
  EXPECT_FALSE(io::Json(options).contains("mixing")) << "a run of a program without this option can go on";
  options.mixing = "input";
  EXPECT_EQ(io::Json(options).get<ClassifierOptions>(), options);
  EXPECT_EQ(io::Json::object().get<ClassifierOptions>(), ClassifierOptions{});
}

std::string json_error(const char* text) {
  try {
    io::parse_json(text, "test").get<ClassifierOptions>();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ClassifierOptions, NameTheMemberThatIsWrong) {
  EXPECT_EQ(json_error(R"({"colour": 1})"), "classifier option \"colour\" is unknown");
  EXPECT_EQ(json_error(R"({"patch": "four"})"), "classifier option \"patch\" is \"four\", which is of the wrong type");
  EXPECT_EQ(json_error("[]"), "classifier options are array, not an object");
}

std::string option_error(const std::function<void(ClassifierOptions&)>& change) {
  ClassifierOptions options = small_options();
  change(options);
  try {
    make_classifier(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ClassifierOptions, MixingThatNoModelHasIsNamed) {
  EXPECT_EQ(option_error([](ClassifierOptions& options) { options.mixing = "dynamic"; }),
            "mixing is \"dynamic\"; it may be static or input");
  EXPECT_EQ(option_error([](ClassifierOptions& options) {
              options.model = "vlt_tiny";
              options.patch = ClassifierOptions{}.patch;
              options.mixing = "input";
            }),
            "mixing is \"input\"; of vlt_tiny it may be static");
}

TEST(ClassifierOptions, WrongValuesAreNamed) {
  const auto expect = [](const char* part, const std::function<void(ClassifierOptions&)>& change) {
    EXPECT_NE(option_error(change).find(part), std::string::npos) << option_error(change);
  };
  expect("model is \"resnet\"; it may be deit_tiny", [](auto& o) { o.model = "resnet"; });
  expect("preset is \"mine\"", [](auto& o) { o.preset = "mine"; });
  expect("attention is \"flash\"", [](auto& o) { o.attention = {"flash"}; });
  expect("attention has 3 entries", [](auto& o) { o.attention = {"mhla", "mhla", "mhla"}; });
  expect("attention is empty", [](auto& o) { o.attention.clear(); });
  expect("image_size is [32]", [](auto& o) { o.image_size = {32}; });
  expect("blocks is [0, 4]", [](auto& o) { o.blocks = {0, 4}; });
  expect("patch is 0", [](auto& o) { o.patch = 0; });
  expect("classes is 0", [](auto& o) { o.classes = 0; });
  expect("heads is 5", [](auto& o) { o.heads = 5; });
  expect("drop_path is 1", [](auto& o) { o.drop_path = 1.0; });
  expect("far", [](auto& o) { o.mixing_init = "far"; });
}

}  // namespace
}  // namespace mhla::models
