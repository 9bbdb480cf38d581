// `mhla tokenizer` and `mhla tokenize` as a user runs them.
#include "text/tokenizer.hpp"

#include <gtest/gtest.h>

#include "cli/captured.hpp"
#include "data/tokens/dataset.hpp"
#include "io/file.hpp"
#include "io/json.hpp"
#include "support/program.hpp"
#include "support/small_tokenizers.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::cli {
namespace {

using mhla::testing::run_mhla;

class TokenizerCommands : public ::testing::Test {
 protected:
  TokenizerCommands() {
    io::write_file(folder_ / "tokenizer.json", mhla::testing::small_tokenizer_json());
    io::write_file(folder_ / "a.txt", "the theme\n<|endoftext|>\nthe thesis, the them\n");
    io::write_file(folder_ / "b.jsonl", "{\"text\": \"the thesis\"}\n");
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  io::Json json(const std::string& name) const {
    const auto bytes = io::read_file(folder_ / name);
    return io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  }

  Captured run(const std::vector<std::string>& arguments) const {
    Captured result = run_captured(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  }

  void refused(const std::vector<std::string>& arguments, const std::string& why, int exit_code = 2) const {
    const Captured result = run_captured(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.out;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }

  mhla::testing::TemporaryFolder folder_;
};

TEST_F(TokenizerCommands, ATrainedTokenizerIsReadAgain) {
  const Captured trained = run({"tokenizer", "train", "--data", path("a.txt"), path("b.jsonl"), "--vocab", "262", "-o",
                                path("t/tokenizer.json"), "--json", path("r.json")});
  EXPECT_NE(trained.out.find("262 tokens from 3 documents"), std::string::npos) << trained.out;
  EXPECT_EQ(json("r.json")["tokens"], 262);
  EXPECT_EQ(json("r.json")["bytes"], 10 + 21 + 10);
  EXPECT_EQ(json("r.json")["fingerprint"], text::open_tokenizer(folder_ / "t")->fingerprint());
  const Captured more =
      run({"tokenizer", "train", "--data", path("a.txt"), "--vocab", "1000", "-o", path("more.json")});
  EXPECT_NE(more.out.find("fewer than --vocab 1000: no pair of tokens appears twice"), std::string::npos) << more.out;
}

TEST_F(TokenizerCommands, EncodePrintsTokensAndDecodeTheirText) {
  EXPECT_EQ(run({"tokenizer", "encode", "--tokenizer", path("tokenizer.json"), "the", "th"}).out, "257 258\n");
  run({"tokenizer", "encode", "--tokenizer", path(""), "the th", "--json", path("r.json")});
  EXPECT_EQ(json("r.json"), (io::Json{{"tokens", {257, 258}}, {"pieces", {"the", " th"}}}));
  EXPECT_EQ(run({"tokenizer", "decode", "--tokenizer", path("tokenizer.json"), "257", "258", "259"}).out, "the th");
  run({"tokenizer", "decode", "--tokenizer", path("tokenizer.json"), "257", "--json", path("r.json")});
  EXPECT_EQ(json("r.json"), (io::Json{{"text", "the"}}));
}

// Line ends, control characters and characters of any width go through a pipe unchanged.
TEST_F(TokenizerCommands, TextGoesThroughPipesUnchanged) {
  const std::string text = "the  caf\u00E9\r\n\x1b[31m\ttheme \u65E5\u672C \n";
  io::write_file(folder_ / "in.txt", text);
  const std::string tokenizer = " --tokenizer '" + path("tokenizer.json") + "'";
  const auto tokens = run_mhla("tokenizer encode" + tokenizer + " < '" + path("in.txt") + "'");
  EXPECT_EQ(tokens.exit_code, 0);
  io::write_file(folder_ / "tokens.txt", tokens.out);
  EXPECT_EQ(run_mhla("tokenizer decode" + tokenizer + " < '" + path("tokens.txt") + "'").out, text);
}

TEST_F(TokenizerCommands, InspectSaysWhatATokenizerIs) {
  const Captured result = run({"tokenizer", "inspect", path("tokenizer.json"), "--json", path("r.json")});
  EXPECT_NE(result.out.find("byte-level BPE, 260 tokens"), std::string::npos) << result.out;
  EXPECT_NE(result.out.find("longest tokens: \"the\""), std::string::npos) << result.out;
  EXPECT_EQ(json("r.json")["special"], (io::Json{{"begin", 259}, {"end", 259}}));
  io::write_file(folder_ / "small.model", mhla::testing::small_sentence_piece());
  EXPECT_NE(run({"tokenizer", "inspect", path("small.model")}).out.find("SentencePiece, 269 tokens"),
            std::string::npos);
}

TEST_F(TokenizerCommands, TokenizeWritesASplit) {
  const std::vector<std::string> command{"tokenize", "--tokenizer", path("tokenizer.json"),
                                         "--data",   path("a.txt"), path("b.jsonl"),
                                         "--out",    path("tokens")};
  auto arguments = command;
  arguments.insert(arguments.end(), {"--split", "val", "--shard", "10", "--json", path("r.json")});
  const Captured result = run(arguments);
  EXPECT_NE(result.out.find("val: 3 documents"), std::string::npos) << result.out;
  const data::TokenDataset dataset(folder_ / "tokens/val");
  EXPECT_EQ(json("r.json")["tokens"], dataset.size());
  EXPECT_EQ(json("r.json")["files"], (dataset.size() + 9) / 10);
  EXPECT_EQ(json("r.json")["tokenizer"], dataset.index().tokenizer);
  EXPECT_EQ(dataset.document_starts().size(), 3U);
  run(command);
  EXPECT_EQ(data::TokenDataset(folder_ / "tokens/train").size(), dataset.size());
  refused(command, "--out is " + path("tokens") + ", which has a folder train already");
  EXPECT_EQ(text::open_tokenizer(folder_ / "tokens")->fingerprint(), dataset.index().tokenizer);
  io::write_file(folder_ / "other.model", mhla::testing::small_sentence_piece());
  refused({"tokenize", "--tokenizer", path("other.model"), "--data", path("a.txt"), "--out", path("tokens"), "--split",
           "test"},
          "--out is " + path("tokens") + ", where splits are made with the tokenizer");
}

TEST_F(TokenizerCommands, InputWithoutEndIsRefused) {
  const auto endless = run_mhla("tokenizer encode --tokenizer '" + path("tokenizer.json") + "' 2>&1 < /dev/zero");
  EXPECT_EQ(endless.exit_code, 1);
  EXPECT_NE(endless.out.find("standard input: more than 268435456 bytes"), std::string::npos) << endless.out;
}

TEST_F(TokenizerCommands, WrongArgumentsAreNamed) {
  refused({"tokenizer"}, "tokenizer: what to do is missing; it may be: train, encode, decode, inspect");
  refused({"tokenizer", "train", "--data", path("a.txt"), "--vocab", "256"}, "--vocab");
  refused({"tokenizer", "train", "--data", path("none"), "--vocab", "300"}, "--data");
  refused({"tokenizer", "decode", "--tokenizer", path("tokenizer.json"), "260"},
          "tokens: \"260\" is no token of " + path("tokenizer.json") + "; it may be 0 to 259");
  refused({"tokenizer", "decode", "--tokenizer", path("tokenizer.json"), "--", "-1"}, "tokens: \"-1\" is no token");
  refused({"tokenizer", "decode", "--tokenizer", path("tokenizer.json"), "1.5"}, "tokens: \"1.5\" is no token");
  refused({"tokenizer", "inspect", path("none")}, "none");
  refused({"tokenizer", "inspect", path("a.txt")}, "a.txt: no tokenizer", 1);
  const std::vector<std::string> tokenize{"tokenize",      "--tokenizer", path("tokenizer.json"), "--data",
                                          path("b.jsonl"), "--out",       path("tokens")};
  for (const auto& [extra, why] :
       {std::pair<std::vector<std::string>, const char*>{{"--split", "a/b"}, "--split is \"a/b\""},
        {{"--split", ".x"}, "--split is \".x\""},
        {{"--shard", "0"}, "--shard"},
        {{"--threads", "-1"}, "--threads"}}) {
    auto arguments = tokenize;
    arguments.insert(arguments.end(), extra.begin(), extra.end());
    refused(arguments, why);
  }
  io::write_file(folder_ / "b.jsonl", "{\"text\": 7}\n");
  refused(tokenize, "b.jsonl: line 1: must be an object with a text", 1);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "tokens/train"));
}

}  // namespace
}  // namespace mhla::cli
