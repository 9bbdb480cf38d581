// `mhla eval language` and `mhla tokenize --recall` as a user runs them.
#include <gtest/gtest.h>

#include "cli/captured.hpp"
#include "io/json.hpp"
#include "support/small_language_model.hpp"
#include "support/temporary_folder.hpp"
#include "tasks/language/text_documents.hpp"

namespace mhla::cli {
namespace {

class EvalLanguageCommand : public ::testing::Test {
 protected:
  EvalLanguageCommand() {
    mhla::testing::save_small_language_model(folder_ / "model");
    io::write_file(folder_ / "a.txt", "the theme\n<|endoftext|>\nthe thesis, the them\n");
    io::write_file(folder_ / "tasks" / "piqa.jsonl", R"({"query": "the", "choices": ["a", "them"], "label": 1})");
  }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  io::Json json(const std::string& name) const {
    const auto bytes = io::read_file(folder_ / name);
    return io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  }

  Captured run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"eval", "language", "--model", path("model"), "--device", "cpu"});
    return run_captured(arguments);
  }

  void refused(const std::vector<std::string>& arguments, const std::string& why, int exit_code) const {
    const Captured result = run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.out;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }

  mhla::testing::TemporaryFolder folder_;
};

TEST_F(EvalLanguageCommand, OneCommandMeasuresTextQuestionsAndRecall) {
  const Captured result =
      run({"--data",      path("a.txt"), "--context", "8",     "--stride",  "4",      "--tasks",
           path("tasks"), "--recall",    "--lengths", "128",   "--pairs",   "8",      "--samples",
           "2",           "--needles",   "1",         "--out", path("out"), "--json", path("r.json")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  for (const char* expected : {"perplexity per token", "windows of 8 tokens, 4 apart", "piqa", "among the values",
                               "among 16 words", "report.html"})
    EXPECT_NE(result.out.find(expected), std::string::npos) << expected;
  EXPECT_EQ(json("r.json"), json("out/evaluation.json"));
  EXPECT_EQ(json("r.json")["perplexity"]["documents"], 2);
  EXPECT_EQ(json("r.json")["tasks"][0]["task"], "piqa");
  EXPECT_TRUE(json("r.json")["tasks"][0]["acc"]["error"].is_null());  // of one question
  EXPECT_EQ(json("r.json")["recall"]["pairs"].size(), 2U);
  const auto page = io::read_file(folder_ / "out/report.html");
  EXPECT_GT(page.size(), 1000U);
}

TEST_F(EvalLanguageCommand, AnswersSayWhatWasAskedAndHowLikelyEachChoiceIs) {
  ASSERT_EQ(run({"--tasks", path("tasks"), "--answers", path("answers.jsonl")}).exit_code, 0);
  const io::Json answers = json("answers.jsonl");  // one line
  EXPECT_EQ(answers["task"], "piqa");
  EXPECT_EQ(answers["right"], 1);
  ASSERT_EQ(answers["choices"].size(), 2U);
  EXPECT_EQ(answers["choices"][1]["context"], "Question: the\nAnswer:");
  EXPECT_EQ(answers["choices"][1]["continuation"], " them");
  EXPECT_LT(answers["choices"][1]["log_likelihood"], 0.0);
}

TEST_F(EvalLanguageCommand, BeyondIsTakenInsteadOfTheModelsOwn) {
  const std::string text(100, 'a');  // the model has four blocks of eight tokens
  io::write_file(folder_ / "long.txt", text);
  for (const char* beyond : {"clamp", "interpolate", "running-mean"}) {
    const Captured result =
        run({"--data", path("long.txt"), "--beyond", beyond, "--json", path(std::string(beyond) + ".json")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(json(std::string(beyond) + ".json")["config"]["beyond"], beyond);
  }
  EXPECT_NE(json("clamp.json")["perplexity"]["loss"], json("running-mean.json")["perplexity"]["loss"]);
  refused({"--data", path("long.txt"), "--beyond", "error"}, "trained for 4", 1);
  refused({"--data", path("long.txt"), "--beyond", "guess"}, "--beyond", 2);
}

TEST_F(EvalLanguageCommand, WrongArgumentsAreNamed) {
  refused({}, "one of --data, --tasks and --recall must be given", 2);
  refused({"--data", path("none.txt")}, "--data", 2);
  refused({"--data", path("a.txt"), "--context", "4", "--stride", "5"}, "--stride is 5; it may be at most --context, 4",
          2);
  refused({"--task", "piqa", "--data", path("a.txt")}, "--task needs --tasks", 2);
  refused({"--answers", path("a.jsonl"), "--data", path("a.txt")}, "--answers needs --tasks", 2);
  refused({"--tasks", path("tasks"), "--task", "guess"}, "--task", 2);
  refused({"--tasks", path("tasks"), "--task", "boolq"}, "there is no boolq.jsonl", 1);
  refused({"--recall", "--lengths", "64"}, "--lengths", 2);
  io::write_file(folder_ / "tasks" / "boolq.jsonl", "{\"query\": 1}\n");
  refused({"--tasks", path("tasks")}, "boolq.jsonl: line 1: \"query\" is of another type", 1);
  io::write_file(folder_ / "blank.txt", "\n");
  refused({"--data", path("blank.txt")}, "blank.txt: no text", 1);
}

TEST_F(EvalLanguageCommand, DocumentsOfPairsAreTokensToTrainOn) {
  const auto tokenize = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"tokenize", "--tokenizer", path("model"), "--out", path("pairs")});
    return run_captured(more);
  };
  const Captured result = tokenize({"--recall", "6", "--length", "64", "--pairs", "8", "--seed", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_NE(result.out.find("6 documents"), std::string::npos) << result.out;
  const auto tokenizer = text::open_tokenizer(folder_ / "model");
  EXPECT_EQ(tasks::text_documents(*tokenizer, {path("pairs/train")}).size(), 6U);
  EXPECT_EQ(run({"--data", path("pairs/train")}).exit_code, 0);
  EXPECT_NE(tokenize({"--split", "b"}).err.find("one of --data and --recall must be given"), std::string::npos);
  EXPECT_NE(tokenize({"--split", "b", "--recall", "1", "--data", path("a.txt")}).err.find("one of --data and --recall"),
            std::string::npos);
  EXPECT_NE(tokenize({"--split", "b", "--recall", "1", "--length", "20"}).err.find("length is 20"), std::string::npos);
}

}  // namespace
}  // namespace mhla::cli
