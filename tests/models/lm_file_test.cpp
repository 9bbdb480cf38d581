// Language models in files: our own, and folders of transformers.
#include "models/lm_file.hpp"

#include <gtest/gtest.h>

#include "io/file.hpp"
#include "models/base/weights.hpp"
#include "models/lm/transformers_config.hpp"
#include "models/small_lm.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::models {
namespace {

using testing::random_ids;
using testing::small_lm;
using testing::small_lm_options;

void write_text(const std::filesystem::path& path, const std::string& text) {
  io::write_file(path, std::as_bytes(std::span(text)));
}

io::Json llama_config() {
  return {
      {"model_type", "llama"},  {"vocab_size", 50},         {"hidden_size", 32},           {"num_hidden_layers", 2},
      {"rms_norm_eps", 1e-6},   {"num_attention_heads", 2}, {"num_key_value_heads", 1},    {"intermediate_size", 24},
      {"rope_theta", 10000.0},  {"hidden_act", "silu"},     {"tie_word_embeddings", true}, {"torch_dtype", "float32"},
      {"rope_scaling", nullptr}};
}

std::string llama_name(std::string name) {
  for (const auto& [ours, theirs] : {std::pair{"model.embeddings.", "model.embed_tokens."},
                                     {".attn_norm.", ".input_layernorm."},
                                     {".mlp_norm.", ".post_attention_layernorm."},
                                     {".attn.", ".self_attn."}})
    if (const std::size_t at = name.find(ours); at != std::string::npos)
      name.replace(at, std::string_view(ours).size(), theirs);
  return name;
}

std::shared_ptr<Lm> small_llama() {
  LmOptions options = small_lm_options({"softmax"});
  options.kv_heads = 1;
  return small_lm(options);
}

NamedTensors llama_tensors(const Lm& model) {
  NamedTensors tensors;
  for (const auto& [name, tensor] : named_tensors(model)) tensors[llama_name(name)] = tensor;
  return tensors;
}

TEST(LmFile, ComesBackWithItsOptions) {
  const mhla::testing::TemporaryFolder folder;
  const torch::NoGradGuard no_gradient;
  const at::Tensor ids = random_ids(2, 12);
  for (const LmOptions& options : testing::all_small_lms()) {
    const auto model = small_lm(options);
    save_model(*model, folder / "model.safetensors");
    const auto loaded = load_lm(folder / "model.safetensors");
    EXPECT_EQ(loaded->options, options);
    EXPECT_TRUE(at::equal(loaded->forward(ids), model->forward(ids))) << testing::description(options);
  }
}

TEST(LmFile, FoldersOfTransformersAreRead) {
  const mhla::testing::TemporaryFolder folder;
  const torch::NoGradGuard no_gradient;
  const auto model = small_llama();
  const at::Tensor ids = random_ids(2, 12), expected = model->forward(ids);
  write_text(folder / "config.json", llama_config().dump());
  NamedTensors tensors = llama_tensors(*model);
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];  // tied, but stored
  io::save_tensors(folder / "model.safetensors", tensors);
  EXPECT_TRUE(at::equal(load_lm(folder.path())->forward(ids), expected));

  std::filesystem::remove(folder / "model.safetensors");
  tensors.erase("lm_head.weight");
  NamedTensors parts[2];
  io::Json map;
  for (const auto& [name, tensor] : tensors) {
    const int part = name.find("mlp") == std::string::npos ? 0 : 1;
    parts[part][name] = tensor;
    map[name] = part == 0 ? "first.safetensors" : "second.safetensors";
  }
  io::save_tensors(folder / "first.safetensors", parts[0]);
  io::save_tensors(folder / "second.safetensors", parts[1]);
  write_text(folder / "model.safetensors.index.json", io::Json{{"weight_map", map}}.dump());
  EXPECT_TRUE(at::equal(load_lm(folder.path())->forward(ids), expected));
  parts[0].erase("model.norm.weight");
  parts[1]["more"] = torch::zeros({64});
  io::save_tensors(folder / "first.safetensors", parts[0]);
  io::save_tensors(folder / "second.safetensors", parts[1]);
  expect_error([&] { load_lm(folder.path()); },
               {"do not fit", "missing in the file:\n  model.norm.weight", "not in the model:\n  more"});
}

TEST(LmFile, WhatFitsOfAFolderFillsAnotherModel) {
  const mhla::testing::TemporaryFolder folder;
  const auto model = small_llama();
  write_text(folder / "config.json", llama_config().dump());
  io::save_tensors(folder / "model.safetensors", llama_tensors(*model));
  EXPECT_EQ(stored_lm_options(folder.path()), load_lm(folder.path())->options);
  const auto same = small_lm(stored_lm_options(folder.path()));
  EXPECT_TRUE(fill_lm(*same, folder.path()).missing.empty());
  for (const auto& [name, tensor] : named_tensors(*model))
    EXPECT_TRUE(at::equal(named_tensors(*same).at(name), tensor)) << name;
  LmOptions wider = model->options;
  wider.mlp_width = 32;
  const auto other = small_lm(wider);
  const LoadReport report = fill_lm(*other, folder.path());
  EXPECT_EQ(report.misshapen.size(), 6U) << report.text();
  EXPECT_EQ(report.loaded + 6, std::ssize(named_tensors(*other)));
}

TEST(LmFile, TheAuthorsConfigMeansTheirModel) {
  const LmOptions options = lm_options_of_transformers({{"model_type", "gla"},
                                                        {"vocab_size", 32000},
                                                        {"hidden_size", 1024},
                                                        {"num_hidden_layers", 24},
                                                        {"num_heads", 4},
                                                        {"num_kv_heads", nullptr},
                                                        {"expand_k", 0.5},
                                                        {"expand_v", 1},
                                                        {"feature_map", "relu"},
                                                        {"hidden_ratio", 4},
                                                        {"intermediate_size", nullptr},
                                                        {"hidden_act", "swish"},
                                                        {"use_short_conv", false},
                                                        {"tie_word_embeddings", true}},
                                                       "config.json");
  LmOptions expected;
  expected.width = 1024, expected.depth = 24, expected.heads = expected.kv_heads = 4;
  EXPECT_EQ(options, expected);
}

TEST(LmFile, WhatCannotBeDoneIsNamed) {
  const auto refused = [](const char* key, const io::Json& value, std::initializer_list<std::string_view> mentions) {
    io::Json config = llama_config();
    config[key] = value;
    expect_error([&] { lm_options_of_transformers(config, "config.json"); }, mentions);
  };
  refused("model_type", "mamba", {"config.json", "\"model_type\" is \"mamba\""});
  refused("rope_scaling", {{"factor", 8.0}}, {"\"rope_scaling\""});
  refused("attention_bias", true, {"\"attention_bias\" is true"});
  refused("hidden_act", "gelu", {"\"hidden_act\" is \"gelu\""});
  refused("head_dim", 64, {"\"head_dim\" is 64"});
  refused("vocab_size", "50", {"\"vocab_size\" is \"50\"", "wrong type"});
}

TEST(LmFile, FilesThatAreNoLanguageModelAreNamed) {
  const mhla::testing::TemporaryFolder folder;
  const auto file = folder / "model.safetensors";
  io::save_tensors(file, {{"x", torch::zeros({4})}});
  expect_error([&] { load_lm(file); }, {"model.safetensors", "\"mhla.config\" is missing"});
  io::save_tensors(file, {{"x", torch::zeros({4})}}, {{"mhla.config", R"({"model": "dit_s2"})"}});
  expect_error([&] { load_lm(file); }, {"task generate", "dit_s2"});
  io::save_tensors(file, {{"x", torch::zeros({4})}}, {{"mhla.config", R"({"model": "lm_340m"})"}});
  expect_error([&] { load_lm(file); }, {"such a model has at least 3.411e+08 elements", "have 4"});
  io::save_tensors(file, {{"x", torch::zeros({4})}}, {{"mhla.config", R"({"model": "lm_340m", "depth": true})"}});
  expect_error([&] { load_lm(file); }, {"mhla.config", "\"depth\""});
}

TEST(LmFile, MatricesOfOtherNumbersOfBlocksAreFitted) {
  const mhla::testing::TemporaryFolder folder;
  const auto file = folder / "model.safetensors";
  const auto model = small_lm(small_lm_options());
  const at::Tensor matrix = model->mixing_parameters().front().flatten(1);
  save_model(*model, file);
  LmOptions options = small_lm_options();
  options.blocks = 3;
  Lm fewer(options);
  EXPECT_EQ(load_weights(fewer, file, LoadMode::adapt).adapted.size(), 2);
  EXPECT_TRUE(at::equal(fewer.mixing_parameters().front().flatten(1), matrix.slice(0, 0, 3).slice(1, 0, 3)));
  options.blocks = 6;
  Lm refused(options);
  EXPECT_EQ(load_weights(refused, file, LoadMode::adapt).misshapen.size(), 2);
  options.beyond = "running-mean";
  Lm more(options);
  EXPECT_EQ(load_weights(more, file, LoadMode::adapt).adapted.size(), 2);
  const at::Tensor extended = more.mixing_parameters().front().flatten(1);
  EXPECT_TRUE(at::equal(extended.slice(0, 0, 4).slice(1, 0, 4), matrix));
  EXPECT_TRUE(at::allclose(extended[5], torch::full({6}, 1.0 / 6.0)));
}

}  // namespace
}  // namespace mhla::models
