// The umT5 encoder: filling up, far positions, files whole and layer by layer, both names.
#include "models/umt5/umt5.hpp"

#include <gtest/gtest.h>

#include "io/file.hpp"
#include "models/base/weights.hpp"
#include "models/small_model.hpp"
#include "models/umt5/umt5_file.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

using mhla::testing::TemporaryFolder;
using testing::relative_error;

Umt5Options small_umt5_options() {
  return {.vocabulary = 50, .width = 16, .attention_width = 24, .mlp_width = 20, .heads = 3, .depth = 2};
}

std::shared_ptr<Umt5> small_umt5() {
  torch::manual_seed(3);
  auto model = std::make_shared<Umt5>(small_umt5_options());
  testing::shake(*model);
  model->eval();
  return model;
}

const std::vector<std::vector<std::int64_t>> kTexts = {{3, 14, 15, 9, 2, 6}, {}, {1}};

TEST(Umt5, HasThePublishedNumberOfParameters) {
  EXPECT_EQ(umt5_parameters({}), 5'680'910'336);
  EXPECT_EQ(umt5_parameters(small_umt5_options()), testing::parameter_count(*small_umt5()));
}

TEST(Umt5, ATextDoesNotDependOnHowFarItIsFilledUp) {
  const torch::NoGradGuard no_gradient;
  const auto model = small_umt5();
  const auto together = encoded_texts(*model, kTexts);
  ASSERT_EQ(together.size(), 3);
  for (std::size_t i = 0; i < kTexts.size(); ++i) {
    EXPECT_EQ(together[i].sizes(), (std::vector{static_cast<std::int64_t>(kTexts[i].size()), std::int64_t{16}}));
    if (kTexts[i].empty()) continue;
    EXPECT_LT(relative_error(encoded_texts(*model, {kTexts[i]})[0], together[i]), 1e-5);
  }
  EXPECT_TRUE(encoded_texts(*model, {}).empty());
}

TEST(Umt5, BucketsOfPositionsAreFineNearAndCoarseFar) {
  const at::Tensor buckets = position_buckets(300, 32, at::kCPU);
  const auto bucket = [&](std::int64_t query, std::int64_t key) { return buckets[query][key].item<std::int64_t>(); };
  EXPECT_EQ(bucket(7, 7), 0);
  EXPECT_EQ(bucket(7, 0), 7);   // earlier keys
  EXPECT_EQ(bucket(0, 7), 23);  // later ones
  EXPECT_EQ(bucket(8, 0), 8);
  EXPECT_EQ(bucket(16, 0), 10);
  EXPECT_EQ(bucket(127, 0), 15);
  EXPECT_EQ(bucket(299, 0), 15);
  EXPECT_EQ(buckets.max().item<std::int64_t>(), 31);
}

TEST(Umt5, EveryParameterLearns) {
  const auto model = small_umt5();
  const at::Tensor ids = torch::randint(0, 50, {2, 40});
  model->encode(ids, torch::ones_like(ids)).pow(3).mean().backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<float>(), 0.0F) << item.key();
  }
}

// transformers' name of a tensor, by the table of names.
std::string in_transformers(const std::string& name) { return names_of(name, umt5_weight_names()).back(); }

TEST(Umt5, OneLayerInMemoryGivesTheSameBitsUnderEitherNames) {
  const TemporaryFolder folder;
  const auto model = small_umt5();
  const torch::NoGradGuard no_gradient;
  const auto expected = encoded_texts(*model, kTexts);
  NamedTensors one, renamed;
  for (const auto& [name, tensor] : named_tensors(*model)) renamed[in_transformers(name)] = tensor;
  ASSERT_TRUE(renamed.contains("encoder.block.1.layer.1.DenseReluDense.wi_0.weight"));
  save_weights(*model, folder / "wan.safetensors");
  io::Json index = {{"weight_map", io::Json::object()}};
  for (auto item = renamed.begin(); item != renamed.end();) {  // in two files
    if (!item->first.starts_with("encoder.block.1.")) {
      ++item;
      continue;
    }
    index["weight_map"][item->first] = "b.safetensors";
    one[item->first] = item->second;
    item = renamed.erase(item);
  }
  std::filesystem::create_directories(folder / "hf");
  io::save_tensors(folder / "hf/b.safetensors", one);
  for (const auto& item : renamed) index["weight_map"][item.first] = "a.safetensors";
  io::save_tensors(folder / "hf/a.safetensors", renamed);
  io::write_json((folder / "hf/model.safetensors.index.json").string(), index);
  for (const char* path : {"wan.safetensors", "hf"})
    for (const bool offload : {false, true}) {
      const auto encoder = load_umt5(folder / path, {.type = at::kFloat, .offload = offload});
      const auto found = encoded_texts(*encoder, kTexts);
      for (std::size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(torch::equal(found[i], expected[i])) << path << offload;
    }
  const auto whole = load_umt5(folder / "hf"), offloaded = load_umt5(folder / "hf", {.offload = true});
  EXPECT_TRUE(torch::equal(encoded_texts(*whole, kTexts)[0], encoded_texts(*offloaded, kTexts)[0]));
}

TEST(Umt5, WhatIsMissingOrDoesNotFitIsNamed) {
  const TemporaryFolder folder;
  const auto model = small_umt5();
  NamedTensors tensors = named_tensors(*model);
  const at::Tensor ids = torch::zeros({1, 3}, at::kLong), mask = torch::ones({1, 3}, at::kLong);
  expect_error([&] { model->encode(ids + 50, mask); }, {"ids go from 50 to 50", "0 to 49"});
  expect_error([&] { model->encode(ids, mask.slice(1, 0, 2)); }, {"mask has shape [1, 2]", "[1, 3]"});
  tensors.erase("blocks.1.attn.k.weight");
  io::save_tensors(folder / "less.safetensors", tensors);
  for (const bool offload : {false, true})
    expect_error(
        [&] { load_umt5(folder / "less.safetensors", {.type = at::kFloat, .offload = offload})->encode(ids, mask); },
        {"less.safetensors: tensor \"blocks.1.attn.k.weight\" is missing"});
  tensors["blocks.1.attn.k.weight"] = torch::full({24, 16}, NAN);
  io::save_tensors(folder / "nan.safetensors", tensors);
  expect_error([&] { load_umt5(folder / "nan.safetensors"); }, {"\"blocks.1.attn.k.weight\" holds values"});
  tensors["blocks.1.attn.k.weight"] = torch::zeros({24, 15});
  io::save_tensors(folder / "shape.safetensors", tensors);
  expect_error([&] { load_umt5(folder / "shape.safetensors"); }, {"[24, 15]", "[24, 16]"});
  tensors.erase("token_embedding.weight");
  io::save_tensors(folder / "none.safetensors", tensors);
  expect_error([&] { load_umt5(folder / "none.safetensors"); }, {"\"token_embedding.weight\"", "is missing"});
}

}  // namespace
}  // namespace mhla::models
