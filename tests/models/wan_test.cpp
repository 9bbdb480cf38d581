// Video transformers: sizes, options, layers, other grids, texts, training.
#include "models/wan/wan.hpp"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "models/registry.hpp"
#include "models/small_wan.hpp"
#include "support/expect_error.hpp"

namespace mhla::models {
namespace {

using testing::relative_error;
using testing::small_wan;
using testing::small_wan_options;
using testing::wan_inputs;

const std::vector<std::int64_t> kHome = {4, 8, 12};

std::vector<WanOptions> all_small_wans() {
  std::vector<WanOptions> all;
  for (const char* attention : {"softmax", "linear", "mhla"}) all.push_back(small_wan_options({attention}));
  for (const auto& [normalizer, output_norm] :
       {std::pair{"paper", "none"}, std::pair{"authors", "channels"}, std::pair{"none", "projected"}}) {
    WanOptions options = small_wan_options();
    options.normalizer = normalizer;
    options.output_norm = output_norm;
    options.gate = options.normalizer != "authors";
    options.lepe = true;
    all.push_back(options);
  }
  all.push_back(small_wan_options({"mhla", "softmax"}));
  all.back().gate = true;
  return all;
}

std::string description(const WanOptions& options) { return io::Json(options).dump(); }

TEST(Wan, HasThePublishedNumberOfParameters) {
  const auto counted = [](const WanOptions& options) { return WanDesign(options).parameters(); };
  WanOptions options;
  EXPECT_EQ(counted(options), 1'418'996'800);
  options.attention = {"mhla"};
  EXPECT_EQ(counted(options), 1'418'996'800 + 678'840);
  options.gate = true;
  EXPECT_EQ(counted(options), 1'490'500'600);
  options.attention = {"hybrid"};
  EXPECT_EQ(counted(options), 1'466'666'000);
  for (const WanOptions& small : all_small_wans())  // and models have as many as is counted
    EXPECT_EQ(counted(small), testing::parameter_count(*small_wan(small))) << description(small);
}

TEST(Wan, TheHybridKeepsSoftmaxInEveryThirdLayer) {
  WanOptions options;
  options.attention = {"hybrid"};
  const auto layers = WanDesign(options).attention;
  ASSERT_EQ(layers.size(), 30);
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    EXPECT_EQ(layers[layer], layer % 3 == 0 ? nn::AttentionKind::softmax : nn::AttentionKind::mhla) << layer;
}

TEST(Wan, IsFoundByItsName) {
  EXPECT_EQ(model_names("video"), (std::vector<std::string>{"wan_tiny", "wan_small", "wan_1.3b", "wan_14b"}));
  const auto model = make_model(small_wan_options(), "video");
  EXPECT_EQ(model->config().get<WanOptions>(), small_wan_options());
}

TEST(Wan, WrongOptionsAreNamed) {
  const auto refused = [](const auto& change, std::initializer_list<std::string_view> mentions) {
    WanOptions options = small_wan_options();
    change(options);
    expect_error([&] { static_cast<void>(WanDesign(options)); }, mentions);
  };
  refused([](WanOptions& o) { o.model = "wan_5b"; }, {"model is \"wan_5b\"", "wan_14b"});
  refused([](WanOptions& o) { o.attention = {"dense"}; }, {"attention is \"dense\""});
  refused([](WanOptions& o) { o.attention = {"mhla", "mhla", "softmax"}; }, {"attention has 3 entries", "2 layers"});
  refused([](WanOptions& o) { o.size = {4, 8}; }, {"size is [4, 8]", "three numbers"});
  refused([](WanOptions& o) { o.size = {4, 8, 13}; }, {"size is [4, 8, 13]", "multiple", "[1, 2, 2]"});
  refused([](WanOptions& o) { o.blocks = {5, 2, 3}; }, {"5"});
  refused([](WanOptions& o) { o.heads = 7; }, {"heads is 7", "24"});
  refused([](WanOptions& o) { o.frequencies = 15; }, {"frequencies is 15", "even"});
  refused([](WanOptions& o) { o.normalizer = "some"; }, {"some"});
  refused([](WanOptions& o) { o.output_norm = "some"; }, {"output_norm is \"some\"", "projected"});
  refused([](WanOptions& o) { o.mixing_init = "guess"; }, {"guess"});
  expect_error([] { static_cast<void>(io::Json{{"widht", 3}}.get<WanOptions>()); }, {"video model option \"widht\""});
}

TEST(Wan, InputsThatDoNotFitAreNamed) {
  const auto model = small_wan(small_wan_options());
  const auto [x, t, states] = wan_inputs(kHome);
  expect_error([&] { model->forward(x.slice(4, 0, 11), t, states); },
               {"latents have shape", "11", "multiples of 1, 2"});
  expect_error([&] { model->forward(x, t.slice(0, 0, 1), states); }, {"times have shape [1]", "[2]"});
  expect_error([&] { model->text({torch::zeros({8, 10})}); }, {"[8, 10]", "at most 7 tokens"});
  expect_error([&] { model->text({}); }, {"there are none"});
  expect_error([&] { model->forward(x, t, WanText{}); }, {"0 layers", "has 2"});
}

// Any number of frames, rows and columns: ragged blocks, and fewer where there is no room.
TEST(Wan, TakesVideosOfAnySize) {
  const torch::NoGradGuard no_gradient;
  for (const WanOptions& options : all_small_wans()) {
    const auto model = small_wan(options);
    for (const std::vector<std::int64_t>& size : {std::vector<std::int64_t>{5, 6, 10}, {1, 2, 2}}) {
      const auto [x, t, states] = wan_inputs(size);
      const at::Tensor velocity = model->forward(x, t, states);
      EXPECT_EQ(velocity.sizes(), x.sizes());
      EXPECT_TRUE(velocity.isfinite().all().item<bool>()) << description(options);
    }
  }
}

TEST(Wan, AVideoDoesNotDependOnItsBatch) {
  const torch::NoGradGuard no_gradient;
  for (const WanOptions& options : all_small_wans()) {
    const auto model = small_wan(options);
    const auto [x, t, states] = wan_inputs(kHome);
    const at::Tensor together = model->forward(x, t, states);
    for (const std::int64_t row : {0, 1}) {
      const at::Tensor alone = model->forward(x.slice(0, row, row + 1), t.slice(0, row, row + 1),
                                              std::vector{states[static_cast<std::size_t>(row)]});
      EXPECT_LT(relative_error(alone[0], together[row]), 1e-5) << description(options);
    }
  }
}

TEST(Wan, TheTextCountsAndSoDoesItsLength) {
  const torch::NoGradGuard no_gradient;
  const auto model = small_wan(small_wan_options());
  const auto [x, t, states] = wan_inputs(kHome, 1);
  const at::Tensor velocity = model->forward(x, t, states);
  EXPECT_GT(relative_error(model->forward(x, t, std::vector{states[0].slice(0, 0, 3)}), velocity), 1e-4);
  const at::Tensor filled = at::constant_pad_nd(states[0], {0, 0, 0, 2});  // as the model does itself
  EXPECT_TRUE(torch::equal(model->forward(x, t, std::vector{filled}), velocity));
  const WanText text = model->text(states);  // made once, used at all times
  EXPECT_TRUE(torch::equal(model->forward(x, t, text), velocity));
}

TEST(Wan, StartsWithoutVelocityAndEveryParameterLearns) {
  for (const WanOptions& options : all_small_wans()) {
    torch::manual_seed(1);
    Wan model(options);
    const auto [x, t, states] = wan_inputs(kHome);
    EXPECT_EQ(model.forward(x, t, states).abs().max().item<float>(), 0.0F);
    testing::shake(model);
    model.forward(x, t, states).square().mean().backward();
    for (const auto& item : model.named_parameters()) {
      ASSERT_TRUE(item.value().grad().defined()) << item.key() << description(options);
      EXPECT_GT(item.value().grad().abs().max().item<float>(), 0.0F) << item.key() << description(options);
    }
  }
}

// A matrix that is resized for fewer blocks learns as well.
TEST(Wan, MixingLearnsOnSmallerGrids) {
  const auto model = small_wan(small_wan_options());
  const auto [x, t, states] = wan_inputs({1, 8, 12});
  model->forward(x, t, states).square().mean().backward();
  EXPECT_GT(model->blocks()[1]->self_attn->mixing().grad().abs().max().item<float>(), 0.0F);
}

TEST(Wan, RecomputationGivesTheSameGradients) {
  WanOptions options = small_wan_options({"mhla", "softmax"});
  const auto kept = small_wan(options);
  options.recompute = true;
  const auto again = small_wan(options);
  const auto [x, t, states] = wan_inputs(kHome);
  kept->forward(x, t, states).square().mean().backward();
  again->forward(x, t, states).square().mean().backward();
  const auto parameters = again->named_parameters();
  for (const auto& item : kept->named_parameters())
    EXPECT_LT(relative_error(parameters[item.key()].grad(), item.value().grad()), 1e-4) << item.key();
}

TEST(Wan, MixingStaysInItsRange) {
  const auto model = small_wan(small_wan_options());
  const torch::NoGradGuard no_gradient;
  at::Tensor mixing = model->blocks()[0]->self_attn->mixing();
  mixing.fill_(1.5).slice(0, 0, 1).fill_(-0.5);
  model->after_step();
  EXPECT_EQ(mixing.min().item<float>(), 0.0F);
  EXPECT_EQ(mixing.max().item<float>(), 1.0F);
  EXPECT_FALSE(model->decays("blocks.0.self_attn.block_attn.conv.weight"));
  EXPECT_FALSE(model->decays("blocks.0.modulation"));
  EXPECT_TRUE(model->decays("blocks.0.ffn.0.weight"));
}

TEST(Wan, RunsInBfloat16AndUnderAutocast) {
  const torch::NoGradGuard no_gradient;
  for (const WanOptions& options : all_small_wans()) {
    const auto model = small_wan(options);
    const auto [x, t, states] = wan_inputs(kHome);
    const at::Tensor expected = model->forward(x, t, states);
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    const at::Tensor mixed = model->forward(x, t, states);
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::clear_cache();
    EXPECT_LT(relative_error(mixed, expected), 0.1) << description(options);
    model->to(at::kBFloat16);
    EXPECT_LT(relative_error(model->forward(x, t, states), expected), 0.1) << description(options);
  }
}

}  // namespace
}  // namespace mhla::models
