// The parts of the engine one by one.
#include <gtest/gtest.h>

#include <cmath>

#include "train/autocast.hpp"
#include "train/flop_count.hpp"
#include "train/toy_task.hpp"
#include "train/trainer.hpp"

namespace mhla::train {
namespace {

TEST(Schedule, WarmsUpAndFallsToItsFloor) {
  const Schedule cosine{.peak = 1.0, .floor = 0.1, .warmup_from = 0.2, .warmup = 10, .steps = 110};
  EXPECT_DOUBLE_EQ(cosine.at(0), 0.2);
  EXPECT_DOUBLE_EQ(cosine.at(5), 0.6);
  EXPECT_DOUBLE_EQ(cosine.at(10), 1.0);
  EXPECT_NEAR(cosine.at(60), 0.55, 1e-12);
  EXPECT_NEAR(cosine.at(35), 0.1 + 0.9 * 0.5 * (1.0 + std::sqrt(0.5)), 1e-12);
  EXPECT_NEAR(cosine.at(110), 0.1, 1e-12);
  Schedule line = cosine;
  line.kind = "linear";
  EXPECT_NEAR(line.at(35), 0.775, 1e-12);
  line.kind = "constant";
  EXPECT_DOUBLE_EQ(line.at(100), 1.0);
  line.kind = "stairs";
  EXPECT_THROW(line.validate(), Error);
}

TEST(Parameters, OnlyMatricesDecay) {
  const auto alone = make_communicator();
  testing::ToyTask task(*alone);
  std::map<std::string, bool> decays;
  const auto asked = [&](const std::string& name) { return task.decays(name); };
  for (const Parameter& parameter : trained_parameters(task.model(), asked)) decays[parameter.name] = parameter.decays;
  EXPECT_TRUE(decays.at("embed.weight"));
  EXPECT_TRUE(decays.at("attention.qkv.weight"));
  EXPECT_FALSE(decays.at("embed.bias"));
  EXPECT_FALSE(decays.at("norm.weight"));
  EXPECT_FALSE(decays.at("attention.mixing"));
  struct Positions : torch::nn::Module {
    Positions() {
      register_parameter("positions", torch::zeros({1, 4, 8}));
      register_parameter("gamma", torch::zeros({1, 8, 1, 1}));
      register_parameter("frozen", torch::zeros({2, 2}), false);
    }
  };
  const auto parameters = trained_parameters(Positions(), [](const std::string& name) { return name != "positions"; });
  ASSERT_EQ(parameters.size(), 2U);
  for (const Parameter& parameter : parameters) EXPECT_FALSE(parameter.decays) << parameter.name;
}

// Clipping and decay as torch's own functions do them.
TEST(AdamW, AgreesWithTorch) {
  torch::manual_seed(0);
  at::Tensor ours = torch::randn({5, 7}, at::requires_grad()), bias = torch::randn({7}, at::requires_grad());
  at::Tensor theirs = ours.detach().clone().requires_grad_(), their_bias = bias.detach().clone().requires_grad_();
  AdamW optimizer({{"w", ours, true}, {"b", bias, false}}, {.weight_decay = 0.1, .clip = 0.5});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::vector{theirs}, std::make_unique<torch::optim::AdamWOptions>(1e-2));
  groups.emplace_back(std::vector{their_bias}, std::make_unique<torch::optim::AdamWOptions>(1e-2));
  torch::optim::AdamW reference(groups);
  static_cast<torch::optim::AdamWOptions&>(reference.param_groups()[0].options()).weight_decay(0.1);
  static_cast<torch::optim::AdamWOptions&>(reference.param_groups()[1].options()).weight_decay(0.0);
  for (int step = 0; step < 10; ++step) {
    const at::Tensor x = torch::randn({3, 5});
    const auto loss = [&](const at::Tensor& w, const at::Tensor& b) { return (x.mm(w) + b).square().sum(); };
    ours.mutable_grad().reset();
    bias.mutable_grad().reset();
    reference.zero_grad();
    loss(ours, bias).backward();
    loss(theirs, their_bias).backward();
    const double norm = torch::nn::utils::clip_grad_norm_({theirs, their_bias}, 0.5);
    EXPECT_NEAR(optimizer.step(1e-2).item<double>(), norm, 1e-4 * norm);
    reference.step();
  }
  EXPECT_TRUE(torch::allclose(ours, theirs, 1e-5, 1e-6));
  EXPECT_TRUE(torch::allclose(bias, their_bias, 1e-5, 1e-6));
}

TEST(AdamW, AStepWithoutFiniteGradientsChangesNothing) {
  at::Tensor weight = torch::ones({3, 3}, at::requires_grad());
  AdamW optimizer({{"w", weight, true}}, {});
  weight.mutable_grad() = torch::full({3, 3}, NAN);
  optimizer.step(0.1);
  EXPECT_TRUE(torch::equal(weight, torch::ones({3, 3})));
  EXPECT_EQ(optimizer.state().at("steps").item<float>(), 0.0F);
  EXPECT_EQ(optimizer.skipped().item<float>(), 1.0F);
  weight.mutable_grad() = torch::ones({3, 3});
  optimizer.step(0.1);
  EXPECT_NEAR(weight[0][0].item<double>(), 1.0 - 0.1 * 0.05 - 0.1, 1e-5);
}

TEST(Ema, FollowsTheWeightsAndExchangesWithThem) {
  torch::nn::Linear layer(3, 2);
  Ema ema(*layer, 0.9);
  const at::Tensor before = layer->weight.detach().clone();
  {
    const at::NoGradGuard no_grad;
    layer->weight.add_(1.0);
  }
  ema.update(1000);
  EXPECT_TRUE(torch::allclose(ema.state().at("weight"), before + 0.1));
  {
    const EmaWeights weights(&ema);
    EXPECT_TRUE(torch::allclose(layer->weight, before + 0.1));
  }
  EXPECT_TRUE(torch::allclose(layer->weight, before + 1.0));
  ema.update(0);  // early on only a tenth is kept
  EXPECT_TRUE(torch::allclose(ema.state().at("weight"), before + 0.91));
}

TEST(Autocast, LastsAsLongAsItLives) {
  const at::Tensor a = torch::randn({4, 4});
  {
    const Autocast autocast(at::kCPU, true);
    EXPECT_EQ(a.mm(a).scalar_type(), at::kBFloat16);
    const Autocast off(at::kCPU, false);
    EXPECT_EQ(a.mm(a).scalar_type(), at::kFloat);
  }
  EXPECT_EQ(a.mm(a).scalar_type(), at::kFloat);
}

TEST(FlopCounter, CountsProductsOnceWithAndWithoutAutocast) {
  torch::nn::Linear layer(16, 32);
  torch::nn::Conv2d patches(torch::nn::Conv2dOptions(3, 8, 2).stride(2));
  for (const bool bf16 : {false, true}) {
    const FlopCounter counter;
    at::Tensor loss;
    {
      const Autocast autocast(at::kCPU, bf16);
      loss = layer(torch::randn({5, 4, 16})).sum() + patches(torch::randn({2, 3, 8, 8})).sum();
    }
    const double forward = 2.0 * 20 * 16 * 32 + 2.0 * (2 * 8 * 16) * (3 * 4);
    EXPECT_DOUBLE_EQ(counter.flops(), forward) << bf16;
    loss.backward();
    EXPECT_GT(counter.flops(), 1.9 * forward) << bf16;  // the input of the first layer needs no gradient
  }
}

}  // namespace
}  // namespace mhla::train
