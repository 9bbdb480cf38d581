// Weights of video transformers: what a model is follows from its tensors; other names, other block layouts.
#include <gtest/gtest.h>

#include "models/base/weights.hpp"
#include "models/small_wan.hpp"
#include "models/wan/wan_config.hpp"
#include "models/wan/wan_file.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

using testing::small_wan;
using testing::small_wan_options;

Shapes shapes_of_model(const WanOptions& options) {
  Shapes shapes;
  for (const auto& [name, tensor] : named_tensors(*small_wan(options))) shapes[name] = tensor.sizes().vec();
  return shapes;
}

const io::Json kForeignConfig = {{"num_heads", 2}, {"text_len", 7}, {"block_layout", {2, 2, 3}}};

// The published variants: mhla_uni with and without gate and convolution, mhla, gated_mhla, and a hybrid.
TEST(WanWeights, TheVariantFollowsFromTheTensors) {
  for (const char* output_norm : {"head", "channels", "projected", "none"})
    for (const bool gate : {false, true})
      for (const bool lepe : {false, true}) {
        WanOptions options = small_wan_options({"softmax", "mhla"});
        options.output_norm = output_norm;
        options.gate = gate;
        options.lepe = lepe;
        const WanOptions found = wan_options_of(shapes_of_model(options), kForeignConfig);
        EXPECT_EQ(found.attention, options.attention);
        EXPECT_EQ(found.output_norm, output_norm);
        EXPECT_EQ(found.gate, gate);
        EXPECT_EQ(found.lepe, lepe);
        EXPECT_EQ(shapes_of_model(found), shapes_of_model(options));
      }
}

TEST(WanWeights, AConfigSaysWhatTensorsDoNot) {
  const Shapes shapes = shapes_of_model(small_wan_options({"linear"}));
  EXPECT_EQ(wan_options_of(shapes, kForeignConfig).attention, (std::vector<std::string>{"softmax", "softmax"}));
  io::Json config = kForeignConfig;
  config["self_attn_type"] = "linear";
  config["norm_output"] = true;
  EXPECT_EQ(wan_options_of(shapes, config).attention, (std::vector<std::string>{"linear", "linear"}));
  EXPECT_EQ(wan_options_of(shapes, config).normalizer, "authors");
  EXPECT_EQ(wan_options_of(shapes, config).text_tokens, 7);
  EXPECT_EQ(wan_options_of(shapes, {}).heads, 1);  // 128 channels a head
}

TEST(WanWeights, WhatDoesNotFitIsNamed) {
  Shapes shapes = shapes_of_model(small_wan_options());
  expect_error([&] { wan_options_of(shapes, {{"block_layout", {2, 2, 2}}}); },
               {"\"block_layout\" is [2, 2, 2], M = 8", "12 rows"});
  expect_error([&] { wan_options_of(shapes, {{"num_heads", "two"}}); }, {"\"num_heads\"", "wrong type"});
  shapes.erase("text_embedding.0.weight");
  expect_error([&] { wan_options_of(shapes, kForeignConfig); }, {"\"text_embedding.0.weight\" is missing"});
}

// One of our files, and a folder of Wan's with its config; what is missing or left over is named.
TEST(WanWeights, AFileOrAFolderGivesTheStoredModel) {
  const mhla::testing::TemporaryFolder folder;
  WanOptions options = small_wan_options({"mhla", "softmax"});
  options.gate = true;
  const auto stored = small_wan(options);
  const torch::NoGradGuard no_gradient;
  save_model(*stored, folder / "own.safetensors");
  const auto weights = folder / "wan/diffusion_pytorch_model.safetensors";
  NamedTensors tensors = named_tensors(*stored);
  std::filesystem::create_directories(folder / "wan");
  io::save_tensors(weights, tensors);
  io::write_json((folder / "wan/config.json").string(), kForeignConfig);
  const auto [x, t, states] = testing::wan_inputs({4, 8, 12});
  for (const char* path : {"own.safetensors", "wan", "wan/diffusion_pytorch_model.safetensors"})
    EXPECT_TRUE(torch::equal(load_wan(folder / path)->forward(x, t, states), stored->forward(x, t, states))) << path;
  EXPECT_EQ(load_wan(folder / "wan", at::kCPU, at::kBFloat16)->parameters()[0].scalar_type(), at::kBFloat16);
  tensors["more"] = torch::zeros({1000});
  io::save_tensors(weights, tensors);
  expect_error([&] { load_wan(folder / "wan"); }, {"safetensors: tensor \"more\" is none of this"});
  tensors.erase("blocks.1.norm3.bias");
  io::save_tensors(weights, tensors);
  expect_error([&] { load_wan(folder / "wan"); }, {"tensor \"blocks.1.norm3.bias\" is missing"});
}

TEST(WanWeights, AMatrixOfAnotherLayoutIsResized) {
  const mhla::testing::TemporaryFolder folder;
  save_model(*small_wan(small_wan_options()), folder / "wan.safetensors");
  WanOptions options = small_wan_options();
  options.blocks = {1, 4, 2};
  const auto model = small_wan(options);
  const LoadReport report = load_weights(*model, folder / "wan.safetensors", LoadMode::adapt);
  EXPECT_TRUE(report.missing.empty() && report.misshapen.empty() && report.extra.empty()) << report.text();
  EXPECT_EQ(report.adapted.size(), 2);
}

}  // namespace
}  // namespace mhla::models
