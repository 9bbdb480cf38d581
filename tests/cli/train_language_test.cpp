// From text to a language model, as a user does it.
#include <gtest/gtest.h>

#include "cli/captured.hpp"
#include "io/file.hpp"
#include "io/json.hpp"
#include "support/small_tokens.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/language/language_model.hpp"

namespace mhla::cli {
namespace {

class TrainLanguageCommand : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::vector<std::string> command(const std::vector<std::string>& more) const {
    std::vector<std::string> all{
        "train",        "language",  "--data",    path("tokens"), "--out",   path("out"), "--model",
        "lm_tiny",      "--width",   "32",        "--heads",      "2",       "--depth",   "2",
        "--block-size", "8",         "--context", "32",           "--steps", "2",         "--device",
        "cpu",          "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  mhla::testing::TemporaryFolder folder_;
};

TEST_F(TrainLanguageCommand, FromTextToAModel) {
  io::write_file(folder_ / "train.txt", mhla::testing::small_corpus(40, 1));
  io::write_file(folder_ / "val.txt", mhla::testing::small_corpus(10, 2));
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"tokenizer", "train", "--data", path("train.txt"), "--vocab", "270", "-o",
                                 path("tokenizer.json")},
        {"tokenize", "--tokenizer", path("tokenizer.json"), "--data", path("train.txt"), "--out", path("tokens")},
        {"tokenize", "--tokenizer", path("tokenizer.json"), "--data", path("val.txt"), "--out", path("tokens"),
         "--split", "val"}}) {
    const Captured prepared = run_captured(arguments);
    ASSERT_EQ(prepared.exit_code, 0) << prepared.err;
  }
  const Captured trained = run_captured(command({"--attention", "mhla,softmax", "--batch-tokens", "256", "--no-gate",
                                                 "--separate-documents", "--json", path("r.json")}));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_NE(trained.out.find("lm_tiny with mhla, softmax attention on tokens"), std::string::npos) << trained.out;
  EXPECT_NE(trained.out.find("documents of a window do not see each other"), std::string::npos) << trained.out;
  const auto bytes = io::read_file(folder_ / "r.json");
  const io::Json json = io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, "r.json");
  EXPECT_TRUE(json["finished"].get<bool>());
  EXPECT_GT(json["results"]["val/perplexity"].get<double>(), 1.0);
  EXPECT_EQ(json["settings"]["batch_tokens"], 256);
  const models::LmOptions options = tasks::open_language_model(folder_ / "out").model->options;
  EXPECT_EQ(options.attention, (std::vector<std::string>{"mhla", "softmax"}));
  EXPECT_EQ(options.blocks, 4);
  EXPECT_FALSE(options.output_gate);
}

TEST_F(TrainLanguageCommand, WrongArgumentsAreNamed) {
  mhla::testing::write_small_tokens(folder_ / "tokens");
  for (const auto& [more, named] :
       {std::pair<std::vector<std::string>, const char*>{{"--attention", "magic"}, "--attention"},
        {{"--recipe", "large"}, "--recipe"},
        {{"--context", "0"}, "--context"},
        {{"--beyond", "never"}, "--beyond"},
        {{"--batch-tokens", "33"}, "--batch-tokens is 33; it must be a multiple of 32"},
        {{"--attention", "mhla,softmax,mhla", "--batch-tokens", "256"}, "attention"},
        {{"--mixing-init", "magic", "--batch-tokens", "256"}, "mixing"},
        {{"--tokenizer", path("none")}, "--tokenizer"}}) {
    const Captured refused = run_captured(command(more));
    EXPECT_EQ(refused.exit_code, 2) << named << refused.out;
    EXPECT_NE(refused.err.find(named), std::string::npos) << refused.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out"));
}

}  // namespace
}  // namespace mhla::cli
