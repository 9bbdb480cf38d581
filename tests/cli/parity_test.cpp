// The stored cases of the authors' code hold, and a case that does not hold is found out.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "cli/parity/kinds.hpp"
#include "io/file.hpp"
#include "io/safetensors.hpp"
#include "mhla/types.hpp"
#include "support/expect_error.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::cli {
namespace {

std::filesystem::path data(const char* name) { return std::filesystem::path(MHLA_TEST_DATA) / name; }

class StoredCase : public ::testing::TestWithParam<const char*> {};

TEST_P(StoredCase, HoldsWithinItsTolerance) {
  const auto results = parity::check_case(data(GetParam()));
  ASSERT_FALSE(results.empty());
  for (const parity::Result& result : results) {
    EXPECT_EQ(result.tolerance, 1e-5);
    EXPECT_LE(result.relative_rms, result.tolerance) << result.output;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Authors, StoredCase,
    ::testing::Values("nlp_op_256.safetensors", "nlp_op_ragged_300.safetensors", "wan_mixing_init.safetensors",
                      "vit_cos.safetensors", "vit_exp.safetensors", "vit_linear.safetensors",
                      "dit_diffusion.safetensors", "dit_s256.safetensors", "dit_small_dw.safetensors",
                      "dit_softmax_block.safetensors", "gla_op.safetensors", "llama_softmax_lm.safetensors",
                      "lm_tiny.safetensors", "nlp_layer_200.safetensors", "nlp_layer_320.safetensors",
                      "sd_vae.safetensors", "sampler_ddpm_ddim.safetensors", "sampler_ddpm_dpmpp_2m.safetensors",
                      "sampler_flow_euler.safetensors", "sampler_flow_dpmpp_2m.safetensors",
                      "sampler_flow_unipc.safetensors", "dcae.safetensors", "gemma2.safetensors",
                      "sana_linear_hf.safetensors", "umt5_encoder.safetensors", "umt5_encoder_hf.safetensors",
                      "wan_hybrid.safetensors", "wan_mhla_gated.safetensors", "wan_mhla_lepe_norm.safetensors",
                      "wan_pipeline_hf.safetensors", "wan_softmax_hf.safetensors", "wan_vae.safetensors",
                      "wan_vae_hf.safetensors"),
    [](const auto& info) { return std::string(info.param, std::string_view(info.param).find('.')); });

// A stored case with some of its bytes or its config replaced.
class TamperedCase : public ::testing::Test {
 protected:
  TamperedCase()
      : file_(io::SafeTensors::load(data("nlp_op_256.safetensors"))), tensors_(file_.tensors()),
        metadata_(file_.metadata()) {}

  std::filesystem::path written() {
    io::write_file(folder_ / "case.safetensors", io::encode_safetensors(tensors_, metadata_));
    return folder_ / "case.safetensors";
  }

  std::string error() {
    try {
      parity::check_case(written());
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  testing::TemporaryFolder folder_;
  io::SafeTensors file_;
  std::map<std::string, io::SafeTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

TEST_F(TamperedCase, OneWrongNumberExceedsTheTolerance) {
  std::vector<std::byte> changed(tensors_["out/o"].data.begin(), tensors_["out/o"].data.end());
  const float wrong = 1.0F;
  std::memcpy(changed.data() + 400, &wrong, sizeof(wrong));
  tensors_["out/o"].data = changed;
  const auto results = parity::check_case(written());
  EXPECT_GT(results.front().relative_rms, results.front().tolerance);
  EXPECT_GT(results.front().largest_error, 1e-2);
}

TEST_F(TamperedCase, ANumberThatIsNotFiniteIsNamed) {
  for (const char* name : {"in/q", "in/mix", "out/o"})
    for (const float wrong : {NAN, INFINITY}) {
      std::vector<std::byte> changed(tensors_[name].data.begin(), tensors_[name].data.end());
      std::memcpy(changed.data() + 80, &wrong, sizeof(wrong));
      tensors_[name].data = changed;
      EXPECT_NE(error().find(std::string("tensor \"") + name + "\" holds values that are not finite"),
                std::string::npos)
          << error();
      tensors_ = file_.tensors();
    }
}

TEST_F(TamperedCase, TheToleranceOfTheConfigApplies) {
  metadata_["config"] = R"({"kind": "causal_op", "chunk": 64, "scale": "d^-0.5", "tolerance": 0.25})";
  EXPECT_EQ(parity::check_case(written()).front().tolerance, 0.25);
}

TEST_F(TamperedCase, AnUnknownKindListsTheKnownOnes) {
  metadata_["config"] = R"({"kind": "poem"})";
  EXPECT_NE(error().find("\"poem\"; known are: " + parity::known_kinds()), std::string::npos) << error();
  EXPECT_TRUE(parity::known_kinds().starts_with("causal_op, ")) << parity::known_kinds();
}

TEST_F(TamperedCase, WhatIsMissingIsNamed) {
  tensors_.erase("in/k");
  EXPECT_NE(error().find("in/k"), std::string::npos);
  metadata_["config"] = R"({"kind": "causal_op"})";
  tensors_ = file_.tensors();
  EXPECT_NE(error().find("\"chunk\" is missing"), std::string::npos) << error();
  metadata_["config"] = R"({"chunk": 64})";
  EXPECT_NE(error().find("\"kind\" is missing"), std::string::npos) << error();
  metadata_["config"] = "not JSON";
  EXPECT_NE(error().find("not valid JSON"), std::string::npos) << error();
  metadata_.erase("config");
  EXPECT_NE(error().find("\"config\" is missing"), std::string::npos) << error();
}

TEST_F(TamperedCase, ValuesOfTheWrongTypeAreNamed) {
  metadata_["config"] = R"({"kind": "causal_op", "chunk": "many"})";
  EXPECT_NE(error().find("\"chunk\""), std::string::npos) << error();
  metadata_["config"] = R"({"kind": "causal_op", "chunk": 64, "scale": "large"})";
  EXPECT_NE(error().find("\"scale\""), std::string::npos) << error();
}

// A config of a stored case with one member replaced.
class TamperedConfig : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(TamperedConfig, IsRefusedWithFileAndMember) {
  const auto& [name, change] = GetParam();
  const io::SafeTensors file = io::SafeTensors::load(data(name));
  io::Json config = io::parse_json(file.metadata().at("config"), "config");
  const io::Json changed = io::parse_json(change, "change");
  config.update(changed);
  const testing::TemporaryFolder folder;
  io::write_file(folder / "case.safetensors", io::encode_safetensors(file.tensors(), {{"config", config.dump()}}));
  expect_error([&] { parity::check_case(folder / "case.safetensors"); },
               {(folder / "case.safetensors").string() + ": ", "\"" + changed.items().begin().key() + "\""});
}

constexpr const char* kOperator = "nlp_op_256.safetensors";
constexpr const char* kMixing = "wan_mixing_init.safetensors";
constexpr const char* kGla = "gla_op.safetensors";
constexpr const char* kVit = "vit_exp.safetensors";
INSTANTIATE_TEST_SUITE_P(
    Members, TamperedConfig,
    ::testing::Values(std::pair{kOperator, R"({"chunk": 0})"}, std::pair{kOperator, R"({"chunk": -1})"},
                      std::pair{kOperator, R"({"chunk": 64.5})"}, std::pair{kOperator, R"({"chunk": true})"},
                      std::pair{kOperator, R"({"chunk": 4611686018427387904})"},
                      std::pair{kOperator, R"({"tolerance": -1})"}, std::pair{kOperator, R"({"tolerance": 1e300})"},
                      std::pair{kOperator, R"({"tolerance": "none"})"}, std::pair{kOperator, R"({"scale": [1]})"},
                      std::pair{kGla, R"({"scale": "d"})"}, std::pair{kGla, R"({"layout": 4})"},
                      std::pair{kMixing, R"({"layout": [0, 5, 10]})"}, std::pair{kMixing, R"({"layout": [-3, 5, 10]})"},
                      std::pair{kMixing, R"({"layout": [3.5, 5, 10]})"}, std::pair{kMixing, R"({"layout": 150})"},
                      std::pair{kMixing, R"({"layout": [4611686018427387904, 5, 10]})"},
                      std::pair{kMixing, R"({"exp_sigma": 0})"}, std::pair{kMixing, R"({"local_thres": -1})"},
                      std::pair{kVit, R"({"patch": 4611686018427387904})"}, std::pair{kVit, R"({"patch": 0})"},
                      std::pair{kVit, R"({"piece": 4611686018427387904})"}, std::pair{kVit, R"({"img": 0})"},
                      std::pair{kVit, R"({"img": 1.5})"}, std::pair{kVit, R"({"classes": 0})"},
                      std::pair{kVit, R"({"depth": 0})"}, std::pair{kVit, R"({"heads": -1})"},
                      std::pair{kVit, R"({"embed_dim": 1e9})"}, std::pair{kVit, R"({"qk_norm": 1})"},
                      std::pair{kVit, R"({"exp_sigma": -3})"}, std::pair{kVit, R"({"transform": 7})"}));

// Sizes that are allowed, but not those of the tensors, are refused before memory is taken for them.
TEST(LargeConfig, IsRefusedWhereTheFileIsSmaller) {
  const auto refused = [](const char* name, const char* change, const char* reason) {
    const io::SafeTensors file = io::SafeTensors::load(data(name));
    io::Json config = io::parse_json(file.metadata().at("config"), "config");
    config.update(io::parse_json(change, "change"));
    const testing::TemporaryFolder folder;
    io::write_file(folder / "case.safetensors", io::encode_safetensors(file.tensors(), {{"config", config.dump()}}));
    expect_error([&] { parity::check_case(folder / "case.safetensors"); }, {"case.safetensors: ", reason});
  };
  refused(kVit, R"({"embed_dim": 4096, "depth": 1024, "heads": 64})", "such a model has at least 2.062e+11 elements");
  refused(kMixing, R"({"layout": [65536, 4096]})", "is not [M, M] with M = 268435456");
}

TEST_F(TamperedCase, NothingToCompareIsAnError) {
  tensors_.erase("out/o");
  EXPECT_NE(error().find("out/<name>"), std::string::npos) << error();
}

}  // namespace
}  // namespace mhla::cli
