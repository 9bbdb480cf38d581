// Vision linear transformers: sizes as published, attention as its formulas say.
#include "models/vlt/vlt.hpp"

#include <gtest/gtest.h>

#include "models/base/weights.hpp"
#include "models/classifiers.hpp"
#include "models/small_model.hpp"

namespace mhla::models {
namespace {

using testing::images;
using testing::relative_error;

ClassifierOptions small_vlt(const char* attention) {
  ClassifierOptions options;
  options.model = "vlt_tiny";
  options.attention = {attention};
  options.image_size = {64, 64};
  options.classes = 5;
  options.blocks = {2, 2};
  options.width = 16;
  options.depth = 1;
  options.heads = 1;
  return options;
}

TEST(Vlt, MhlaAddsTheMixingMatricesOfItsTwoLinearStages) {
  ClassifierOptions options;
  options.model = "vlt_tiny";
  const auto mhla = make_classifier(options);
  EXPECT_EQ(testing::parameter_count(*mhla), 14'897'768 + 2 * 49 * 49 + 2 * 16 * 16);
  EXPECT_EQ(mhla->mixing_matrices().front().size(0), 49);
  EXPECT_EQ(mhla->mixing_matrices().back().size(0), 16);
}

TEST(Vlt, HasThePublishedNames) {
  const auto names = named_tensors(*make_classifier(small_vlt("linear")));
  for (const char* name :
       {"patch_embed.proj.0.weight", "patch_embed.proj.10.running_mean", "layers.0.RoPE.angle",
        "layers.1.blocks.0.norm1.norm.bias", "layers.1.blocks.0.attn.qkvo.weight", "layers.2.blocks.0.attn.lepe.bias",
        "layers.3.blocks.0.attn.proj.bias", "layers.0.blocks.0.ffn.fc1.weight", "layers.0.blocks.0.ffn.dwconv.weight",
        "layers.0.blocks.0.pos.weight", "layers.0.blocks.0.gamma_1", "layers.2.downsample.reduction.bias",
        "layers.0.downsample.norm.weight", "proj.weight", "norm.running_var", "head.weight"})
    EXPECT_TRUE(names.contains(name)) << name;
  EXPECT_EQ(names.at("layers.1.blocks.0.attn.qkvo.weight").sizes(), at::IntArrayRef({128, 32, 1, 1}));
  EXPECT_EQ(names.at("layers.0.blocks.0.gamma_2").sizes(), at::IntArrayRef({1, 16, 1, 1}));
  EXPECT_FALSE(names.contains("layers.3.downsample.reduction.weight"));
}

// [B, H, N, D], pairs of neighbours turned by the row in the first half and by the column in the second.
at::Tensor rotated(const at::Tensor& x, nn::Grid grid) {
  const std::int64_t width = x.size(3);
  const at::Tensor angle = at::pow(10000.0, -at::linspace(0.0, 1.0, width / 4, at::kDouble)).repeat_interleave(2);
  const at::Tensor row = at::arange(grid.height, at::kDouble).repeat_interleave(grid.width);
  const at::Tensor column = at::arange(grid.width, at::kDouble).repeat({grid.height});
  const at::Tensor turn = at::cat({at::outer(row, angle), at::outer(column, angle)}, 1);
  const at::Tensor pairs = x.unflatten(3, {width / 2, 2});
  const at::Tensor turned = at::stack({-pairs.select(4, 1), pairs.select(4, 0)}, 4).flatten(3);
  return x * turn.cos() + turned * turn.sin();
}

// The published formulas of softmax attention and RALA in double, on [B, C, H, W] images.
at::Tensor published(const VltAttention& layer, const at::Tensor& image, std::int64_t heads, bool softmax) {
  NamedTensors p;
  for (const auto& item : layer.named_parameters()) p[item.key()] = item.value().to(at::kDouble);
  const nn::Grid grid{image.size(2), image.size(3)};
  const std::int64_t channels = image.size(1), length = grid.tokens();
  const auto parts = at::conv2d(image.to(at::kDouble), p["qkvo.weight"], p["qkvo.bias"]).chunk(4, 1);
  const auto split = [&](const at::Tensor& x) {
    return x.flatten(2).unflatten(1, {heads, channels / heads}).transpose(2, 3);
  };
  const at::Tensor lepe = at::conv2d(parts[2], p["lepe.weight"], p["lepe.bias"], 1, 2, 1, channels);
  at::Tensor q = split(parts[0]), k = split(parts[1]);
  const at::Tensor v = split(parts[2]);
  const double scale = 1.0 / std::sqrt(static_cast<double>(channels / heads));
  at::Tensor o;
  if (softmax) {
    o = at::matmul(at::softmax(at::matmul(rotated(q, grid), rotated(k, grid).transpose(2, 3)) * scale, -1), v);
  } else {
    q = at::elu(q) + 1.0, k = at::elu(k) + 1.0;
    const at::Tensor share = at::softmax(scale * at::matmul(q.mean(2, true), k.transpose(2, 3)), -1).transpose(2, 3);
    k = k * share * static_cast<double>(length);
    const at::Tensor z = 1.0 / (at::matmul(q, k.mean(2, true).transpose(2, 3)) + 1e-6);
    const at::Tensor kv = at::matmul(rotated(k, grid).transpose(2, 3), v) / static_cast<double>(length);
    o = at::matmul(rotated(q, grid), kv) * z;
  }
  const at::Tensor merged = o.transpose(2, 3).flatten(1, 2).view_as(image);
  return at::conv2d((merged + lepe) * parts[3], p["proj.weight"], p["proj.bias"]);
}

class VltAttentionKind : public ::testing::TestWithParam<const char*> {};

TEST_P(VltAttentionKind, IsThePublishedFormula) {
  torch::manual_seed(1);
  const nn::Grid grid{5, 6};
  VltAttention layer({.dim = 32, .heads = 2, .kind = nn::parse_attention_kind(GetParam())});
  VltRotary rotary(16);
  const at::Tensor image = torch::randn({2, 32, 5, 6});
  const at::Tensor found = nn::as_image(layer.forward(nn::as_tokens(image), grid, rotary->tables(grid)), grid);
  const at::Tensor expected = published(layer, image, 2, GetParam() == std::string("softmax"));
  EXPECT_LT(relative_error(found, expected), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Vlt, VltAttentionKind, ::testing::Values("softmax", "linear"),
                         [](const auto& info) { return std::string(info.param); });

// With one weight for all blocks and no positions (one token per axis turns nothing), MHLA divides by its own sum.
TEST(Vlt, MhlaOfConstantValuesGivesThatConstant) {
  torch::manual_seed(2);
  const nn::Grid grid{1, 1};
  VltAttention layer(
      {.dim = 16, .heads = 1, .kind = nn::AttentionKind::mhla, .lepe = false, .mixing = torch::full({1, 1}, 0.3)});
  VltRotary rotary(16);
  const at::Tensor x = torch::randn({3, 1, 16});
  const auto p = layer.named_parameters();
  const auto parts = at::linear(x, p["qkvo.weight"].flatten(1), p["qkvo.bias"]).chunk(4, 2);
  const at::Tensor expected = at::linear(parts[2] * parts[3], p["proj.weight"].flatten(1), p["proj.bias"]);
  EXPECT_LT(relative_error(layer.forward(x, grid, rotary->tables(grid)), expected), 1e-5);
}

class EveryVlt : public ::testing::TestWithParam<const char*> {};

TEST_P(EveryVlt, TrainsAllItsParameters) {
  torch::manual_seed(3);
  const auto model = make_classifier(small_vlt(GetParam()));
  testing::shake(*model);
  const at::Tensor logits = model->forward(images(4, 64, 64));
  EXPECT_EQ(logits.sizes(), at::IntArrayRef({4, 5}));
  logits.square().sum().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
  }
}

TEST_P(EveryVlt, TakesImagesOfOtherSizes) {
  const auto model = make_classifier(small_vlt(GetParam()));
  testing::shake(*model);
  model->eval();
  for (const auto& [height, width] : {std::pair{64, 64}, {40, 100}, {33, 7}, {1, 1}})
    EXPECT_TRUE(model->forward(images(2, height, width)).isfinite().all().item<bool>()) << height << " x " << width;
}

TEST_P(EveryVlt, AttentionMatricesHaveRowsOfSumOne) {
  const auto model = make_classifier(small_vlt(GetParam()));
  testing::shake(*model);
  model->eval();
  for (std::int64_t layer = 0; layer < model->layers(); ++layer) {
    const at::Tensor matrix = model->attention_matrix(images(2, 64, 64), layer);
    EXPECT_EQ(matrix.size(3), 256 >> (2 * layer));
    EXPECT_LT((matrix.sum(-1) - 1.0).abs().max().item<double>(), 1e-6);
  }
  EXPECT_THROW(model->attention_matrix(images(1, 64, 64), 4), Error);
}

TEST_P(EveryVlt, RecomputationChangesNoGradient) {
  ClassifierOptions options = small_vlt(GetParam());
  const auto gradients = [&] {
    torch::manual_seed(5);
    const auto model = make_classifier(options);
    model->forward(images(2, 64, 64)).square().sum().backward();
    std::vector<at::Tensor> result;
    for (const auto& parameter : model->parameters()) result.push_back(parameter.grad());
    return result;
  };
  const auto expected = gradients();
  options.recompute = true;
  const auto found = gradients();
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Vlt, EveryVlt, ::testing::Values("softmax", "linear", "mhla"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Vlt, LayersMayDifferInAttention) {
  ClassifierOptions options = small_vlt("mhla");
  options.attention = {"softmax", "mhla", "linear", "mhla"};
  const auto model = make_classifier(options);
  EXPECT_EQ(model->mixing_matrices().size(), 2U);
  model->eval();
  EXPECT_TRUE(model->forward(images(1, 64, 64)).isfinite().all().item<bool>());
}

}  // namespace
}  // namespace mhla::models
