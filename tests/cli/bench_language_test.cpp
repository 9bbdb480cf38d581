// `mhla bench model` on language models and with guidance, `mhla bench decode`, and the profile of a run.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/bench/decode_run.hpp"
#include "cli/bench/model_tables.hpp"
#include "cli/bench/profile.hpp"
#include "cli/captured.hpp"
#include "io/json.hpp"
#include "models/small_lm.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::cli {
namespace {

class BenchCommands : public ::testing::Test {
 protected:
  std::string path(const std::string& name) { return (folder_ / name).string(); }
  io::Json json(const std::string& name) {
    std::ifstream stream(path(name));
    return io::Json::parse(stream);
  }

 private:
  mhla::testing::TemporaryFolder folder_;
};

TEST_F(BenchCommands, LanguageModelsAreComparedInTokensPerSecond) {
  const Captured result = run_captured({"bench", "model", "--quick", "--model", "lm_340m", "--attention",
                                        "softmax,linear,gla,mhla", "--json", path("r.json"), "--charts", path("c")});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  const io::Json rows = json("r.json");
  ASSERT_EQ(rows.size(), 8U);
  for (const io::Json& row : rows) {
    EXPECT_EQ(row["tokens"], 128);
    EXPECT_EQ(row["blocks"], row["attention"] == "mhla" ? 2 : 0) << row;
    EXPECT_GT(row["tokens_per_second"].get<double>(), 0.0);
    EXPECT_GT(row["peak_bytes"].get<double>(), 0.0);
    EXPECT_LT(row["rel_err"].get<double>(), 1e-5);
    EXPECT_FALSE(row["out_of_memory"].get<bool>());
  }
  for (const char* part : {"blocks of 64 tokens", "tokens/s", "MHLA's speed over softmax", "MHLA's speed over gla"})
    EXPECT_NE(result.out.find(part), std::string::npos) << part << " in\n" << result.out;
  EXPECT_TRUE(std::filesystem::exists(path("c") + "/throughput_train.svg"));
}

TEST_F(BenchCommands, GuidanceIsAPassOfGeneratorsAlone) {
  const Captured result = run_captured({"bench", "model", "--quick", "--model", "dit_s2", "--blocks", "2", "--passes",
                                        "guided", "--attention", "mhla", "--json", path("r.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(json("r.json").at(0).at("pass"), "guided");
  const Captured wrong = run_captured({"bench", "model", "--model", "lm_tiny", "--passes", "guided"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("lm_tiny is no generator"), std::string::npos) << wrong.err;
}

TEST_F(BenchCommands, TheProfileListsWhatARunDoes) {
  const Captured result = run_captured({"bench", "model", "--quick", "--model", "lm_tiny", "--attention", "softmax",
                                        "--passes", "train", "--profile", "--json", path("r.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_NE(result.out.find("aten::"), std::string::npos) << result.out;
  const io::Json profile = json("r.json").at(0).at("profile");
  ASSERT_GT(profile.size(), 10U);
  for (std::size_t i = 1; i < profile.size(); ++i)
    EXPECT_GE(profile[i - 1]["ms"].get<double>(), profile[i]["ms"].get<double>());
}

TEST(Profile, TimesAreOfAnOperatorItself) {
  const at::Tensor x = torch::randn({64, 64});
  const auto rows = bench::profile_of(torch::kCPU, [&] { at::linear(x, x); });
  const auto row_of = [&](const std::string& name) {
    return std::ranges::find_if(rows, [&](const bench::ProfileRow& row) { return row.name == name; });
  };
  ASSERT_NE(row_of("aten::mm"), rows.end());
  ASSERT_NE(row_of("aten::linear"), rows.end());
  EXPECT_EQ(row_of("aten::mm")->calls, 1);
  for (const bench::ProfileRow& row : rows) EXPECT_GE(row.ms, -1e-3) << row.name;
}

TEST_F(BenchCommands, DecodingHasARowForEveryContextAndBatch) {
  const Captured result =
      run_captured({"bench", "decode", "--quick", "--attention", "softmax,gla,mhla", "--json", path("r.json")});
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  const io::Json rows = json("r.json");
  ASSERT_EQ(rows.size(), 12U);
  for (const io::Json& row : rows) EXPECT_GT(row["tokens_per_second"].get<double>(), 0.0) << row;
  const auto bytes = [&](const std::string& attention, std::int64_t context, std::int64_t batch) {
    for (const io::Json& row : rows)
      if (row["attention"] == attention && row["context"] == context && row["batch"] == batch)
        return row["state_bytes"].get<double>();
    return 0.0;
  };
  EXPECT_GT(bytes("softmax", 1024, 1), 5.0 * bytes("softmax", 128, 1));
  for (const char* fixed : {"gla", "mhla"}) EXPECT_EQ(bytes(fixed, 1024, 1), bytes(fixed, 128, 1));
  const Captured wrong = run_captured({"bench", "decode", "--quick", "--summaries", "bf16"});
  EXPECT_EQ(wrong.exit_code, 2);
  EXPECT_NE(wrong.err.find("--summaries is bf16"), std::string::npos) << wrong.err;
}

TEST(BenchDecode, AMadeStateStandsAtItsContextAndHasRoom) {
  for (const char* attention : {"softmax", "gla", "linear", "mhla"}) {
    models::LmOptions options = models::testing::small_lm_options({attention});
    options.beyond = "clamp";
    const auto model = models::testing::small_lm(options);
    models::LmState state = bench::made_state(*model, {.context = 77, .batch = 3}, 5);
    EXPECT_EQ(state.seen(), (std::vector<std::int64_t>{77, 77, 77}));
    const std::size_t bytes = state.bytes();
    for (int step = 0; step < 5; ++step)
      EXPECT_TRUE(model->step(state, at::ones({3}, at::kLong)).isfinite().all().item<bool>()) << attention;
    EXPECT_EQ(state.bytes(), bytes) << attention;
    EXPECT_EQ(state.seen().front(), 82);
  }
}

TEST(BenchTables, WhatDoesNotFitIntoMemoryIsARow) {
  bench::ModelRow fits;
  fits.model = "lm_340m", fits.attention = "mhla", fits.pass = "train", fits.tokens = 64, fits.blocks = 1,
  fits.batch = 2;
  fits.ms_median = 4.0;
  bench::ModelRow other = fits, too_large = fits;
  other.attention = "linear", other.blocks = 0, other.ms_median = 5.0;
  too_large.attention = "softmax", too_large.blocks = 0, too_large.out_of_memory = true;
  const std::vector<bench::ModelRow> rows = {too_large, other, fits};
  const std::string text = bench::model_table(rows);
  for (const char* part : {"out of memory", "1.25x", "32,000"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  EXPECT_EQ(bench::mhla_summary(rows), "MHLA's speed over linear: 1.25x to 1.25x\n");
  EXPECT_TRUE(too_large.json().at("out_of_memory").get<bool>());
  EXPECT_FALSE(too_large.json().contains("ms_median"));
  bench::DecodeRow decode;
  decode.attention = "softmax", decode.context = 9, decode.batch = 2, decode.state_bytes = 3000000;
  decode.out_of_memory = true;
  EXPECT_NE(bench::decode_table({decode}).find("out of memory"), std::string::npos);
}

}  // namespace
}  // namespace mhla::cli
