// `mhla generate` as a user runs it, with a small random model.
#include <gtest/gtest.h>

#include "cli/captured.hpp"
#include "cli/generate/edited_line.hpp"
#include "io/json.hpp"
#include "models/base/weights.hpp"
#include "models/generator_file.hpp"
#include "models/small_generator.hpp"
#include "support/program.hpp"
#include "support/small_language_model.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::cli {
namespace {

namespace fs = std::filesystem;
using mhla::testing::run_command;

class GenerateCommands : public ::testing::Test {
 protected:
  GenerateCommands() { mhla::testing::save_small_language_model(folder_ / "lm"); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  Captured run(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"generate", "--model", path("lm"), "--device", "cpu", "--past-end"});
    return run_captured(std::move(arguments));
  }

  std::string answer(const std::vector<std::string>& arguments) const {
    const Captured result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }

  void refused(const std::vector<std::string>& arguments, const std::string& why, int exit_code = 2) const {
    const Captured result = run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.out;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
  }

  io::Json json(const std::string& name) const {
    const auto bytes = io::read_file(folder_ / name);
    return io::parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  }

  // The program, with this on its standard input.
  mhla::testing::Finished program(const std::string& arguments, const std::string& input) const {
    io::write_file(folder_ / "input", input);
    return run_command("'" + std::string(MHLA_PROGRAM) + "' generate --device cpu --past-end --model '" + path("lm") +
                       "' " + arguments + " < '" + path("input") + "' 2> '" + path("err") + "'");
  }

  std::string errors() const {
    const auto bytes = io::read_file(folder_ / "err");
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  mhla::testing::TemporaryFolder folder_;
};

TEST_F(GenerateCommands, TheSameSeedGivesTheSameAnswerAloneAndInABatch) {
  const std::string text = answer({"-p", "the theme", "--tokens", "20", "--seed", "4"});
  EXPECT_EQ(answer({"-p", "the theme", "--tokens", "20", "--seed", "4"}), text);
  EXPECT_NE(answer({"-p", "the theme", "--tokens", "20", "--seed", "5"}), text);
  answer(
      {"-p", "[a, b]", "-p", "the theme", "--count", "2", "--tokens", "20", "--seed", "4", "--json", path("a.json")});
  const io::Json answers = json("a.json")["answers"];
  ASSERT_EQ(answers.size(), 4);
  EXPECT_EQ(answers[0]["prompt"], "[a, b]");
  EXPECT_EQ(answers[2]["text"].get<std::string>() + "\n", text);
  EXPECT_EQ(answers[2]["end"], "length");
  EXPECT_EQ(answers[2]["tokens"].size(), 20);
  EXPECT_EQ(answers[3]["number"], 1);
  EXPECT_NE(answers[3]["text"], answers[2]["text"]);
  EXPECT_EQ(json("a.json")["times"]["steps"], 20);
}

TEST_F(GenerateCommands, TheProgramWritesTheAnswerAndItsTimesElsewhere) {
  const std::string expected = answer({"-p", "the theme", "--tokens", "30"});
  const auto streamed = program("-p 'the theme' --tokens 30", "");
  EXPECT_EQ(streamed.exit_code, 0);
  EXPECT_EQ(streamed.out, expected);
  EXPECT_NE(errors().find("answer: 30 tokens, "), std::string::npos) << errors();
  EXPECT_EQ(program("--prompt-file - --tokens 30", "the theme").out, expected);
  io::write_file(folder_ / "prompt.txt", "the theme");
  EXPECT_EQ(program("--prompt-file '" + path("prompt.txt") + "' --tokens 30", "").out, expected);
  const auto as_json = program("-p 'the theme' --tokens 30 --json -", "");
  EXPECT_EQ(io::parse_json(as_json.out, "out")["answers"][0]["text"].get<std::string>() + "\n", expected);
}

TEST_F(GenerateCommands, AConversationGoesOnFromItsFile) {
  const std::string whole = answer({"-p", "the", "--tokens", "40"});
  std::string parts = answer({"-p", "the", "--tokens", "15", "--state", path("talk.state")});
  parts.pop_back();
  answer({"--tokens", "25", "--state", path("talk.state"), "--json", path("a.json")});
  EXPECT_EQ(json("a.json")["answers"][0]["tokens"].size(), 25);
  answer({"-p", "the", "--tokens", "40", "--json", path("b.json")});
  const io::Json all = json("b.json")["answers"][0]["tokens"], rest = json("a.json")["answers"][0]["tokens"];
  for (std::size_t i = 0; i < 25; ++i) EXPECT_EQ(rest[i], all[15 + i]) << i;
  EXPECT_TRUE(whole.starts_with(parts.substr(0, parts.find("\uFFFD"))));

  models::LmOptions other = mhla::testing::small_language_options({"gla"});
  mhla::testing::save_small_language_model(folder_ / "other", other);
  const Captured of_other =
      run_captured({"generate", "--model", path("other"), "--device", "cpu", "--state", path("talk.state"), "-p", "a"});
  EXPECT_EQ(of_other.exit_code, 1);
  EXPECT_NE(of_other.err.find("talk.state: saved state: it is of the model"), std::string::npos) << of_other.err;
  refused({"-p", "a", "-p", "b", "--state", path("talk.state")}, "--state is for one prompt");
  io::write_file(folder_ / "talk.state", "something else");
  refused({"--state", path("talk.state")}, "talk.state", 1);
}

TEST_F(GenerateCommands, WhatCannotBeIsRefusedWithoutOutput) {
  refused({"--prompt-file", path("none")}, "none", 1);
  refused({"-p", "a\xFF"}, "the prompt is not UTF-8");
  refused({"-p", "a", "--stop", ""}, "a stop string is empty");
  refused({"-p", "a", "--top-p", "0"}, "top_p is 0");
  refused({"-p", "a", "--tokens", "0"}, "--tokens");
  refused({"-p", "a", "--beyond", "error", "--tokens", "40"}, "this model reads 32 at most");
  refused({"-p", "a", "--chat"}, "excludes");
  refused({"--chat", "--count", "2"}, "--count is for prompts that are given");
  refused({"-p", "a", "--beyond", "cow"}, "cow");
}

TEST_F(GenerateCommands, FilesOfOtherKindsAreRefused) {
  const auto with = [&](const std::vector<std::string>& arguments, const std::string& why) {
    std::vector<std::string> all = {"generate", "-p", "a", "--device", "cpu"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    const Captured result = run_captured(all);
    EXPECT_EQ(result.exit_code, 1) << result.out;
    EXPECT_NE(result.err.find(why), std::string::npos) << result.err;
  };
  models::save_generator(*models::testing::small_generator(), folder_ / "dit.safetensors", {});
  with({"--model", path("dit.safetensors")}, "a language model is needed");
  with({"--model", path("none")}, "none");
  with({"--model", path("lm/model.safetensors"), "--tokenizer", path("dit.safetensors")}, "no tokenizer");
  io::write_file(folder_ / "empty.json", "");
  with({"--model", path("lm"), "--tokenizer", path("empty.json")}, "empty.json");
  io::write_file(folder_ / "tiny/tokenizer.json", R"({"model": {"type": "BPE", "vocab": {}, "merges": []}})");
  with({"--model", path("lm"), "--tokenizer", path("tiny")}, "tokenizer.json");
  models::LmOptions narrow = mhla::testing::small_language_options();
  narrow.vocabulary = 50;
  models::save_model(*models::testing::small_lm(narrow), folder_ / "narrow.safetensors");
  with({"--model", path("narrow.safetensors"), "--tokenizer", path("lm")},
       "knows 50 tokens, but the tokenizer has 260");
  io::write_file(folder_ / "lm/tokenizer.json", mhla::testing::small_sentence_piece());
  with({"--model", path("lm")}, "the model");
}

TEST_F(GenerateCommands, LinesAreAnsweredWhereNoTerminalIs) {
  const auto chat = program("--chat --tokens 6 --json '" + path("chat.json") + "'",
                            "the theme\n\n/reset\nthe theme\n/save " + path("talk.state") + "\n/cow\n");
  EXPECT_EQ(chat.exit_code, 1);  // of the command that is none
  EXPECT_NE(errors().find("\"/cow\" is no command"), std::string::npos) << errors();
  const io::Json answers = json("chat.json")["answers"];
  ASSERT_EQ(answers.size(), 3);
  EXPECT_EQ(answers[2]["tokens"], answers[0]["tokens"]);
  answer({"-p", "the theme", "--tokens", "12", "--json", path("whole.json")});
  const io::Json whole = json("whole.json")["answers"][0]["tokens"];
  for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ(answers[i / 6]["tokens"][i % 6], whole[i]) << i;
  EXPECT_TRUE(fs::exists(path("talk.state")));
}

TEST_F(GenerateCommands, AnInterruptEndsTheAnswerAndKeepsTheState) {
  io::write_file(folder_ / "script.py", R"(
import signal, subprocess, sys

running = subprocess.Popen(sys.argv[2:], stdout=subprocess.PIPE, stderr=open(sys.argv[1], "wb"))
text = running.stdout.read(200)
running.send_signal(signal.SIGINT)
text += running.stdout.read()
sys.exit(running.wait())
)");
  const auto stopped = run_command(std::string(MHLA_PYTHON) + " '" + path("script.py") + "' '" + path("err") + "' '" +
                                   MHLA_PROGRAM + "' generate --device cpu --past-end --model '" + path("lm") +
                                   "' -p the --tokens 1000000000 --state '" + path("talk.state") + "'");
  EXPECT_EQ(stopped.exit_code, 130) << stopped.out;
  EXPECT_NE(errors().find("ending the answer"), std::string::npos) << errors();
  EXPECT_NE(errors().find("ms each"), std::string::npos) << errors();
  EXPECT_GT(answer({"--tokens", "3", "--state", path("talk.state")}).size(), 1);
}

TEST(EditedLine, KeysChangeWholeCharacters) {
  EditedLine line;
  for (const char* letter : {"a", "é", "€", " ", "x"}) line.press(Key::text, letter);
  EXPECT_EQ(line.text(), "aé€ x");
  line.press(Key::left);
  line.press(Key::left);
  line.press(Key::erase_before);
  EXPECT_EQ(line.text(), "aé x");
  line.press(Key::begin);
  line.press(Key::right);
  line.press(Key::erase_after);
  EXPECT_EQ(line.text(), "a x");
  line.press(Key::left);
  line.press(Key::left);
  line.press(Key::erase_before);
  line.press(Key::text, "b");
  EXPECT_EQ(line.text(), "ba x");
  line.press(Key::end);
  line.press(Key::erase_word);
  EXPECT_EQ(line.text(), "ba ");
  line.press(Key::erase_word);
  EXPECT_EQ(line.text(), "");
  line.set("one two");
  line.press(Key::erase_begin);
  EXPECT_EQ(line.text(), "");
  line.set("one two");
  line.press(Key::begin);
  line.press(Key::erase_end);
  EXPECT_EQ(line.text(), "");
}

TEST(EditedLine, ALongLineShowsThePlaceOfTheCursor) {
  EditedLine line;
  line.set("éabcdefghij");
  EXPECT_EQ(line.view(20).text, "éabcdefghij");
  EXPECT_EQ(line.view(20).cursor, 11);
  EXPECT_EQ(line.view(5).text, "ghij");
  EXPECT_EQ(line.view(5).cursor, 4);
  line.press(Key::begin);
  EXPECT_EQ(line.view(5).text, "éabcd");
  EXPECT_EQ(line.view(5).cursor, 0);
}

// Keys of a terminal through a pseudo-terminal: arrows, history, Ctrl-C at the prompt and in an answer, Ctrl-D.
TEST_F(GenerateCommands, ATerminalHasItsLinesEdited) {
  io::write_file(folder_ / "script.py", R"(
import os, pty, sys, select, json

program, model, out = sys.argv[1:]
pid, terminal = pty.fork()
if pid == 0:
    os.execv(program, [program, "generate", "--device", "cpu", "--past-end", "--model", model, "--chat", "--tokens",
                       "1000000", "--json", out])
seen = b""


def wait_for(text, after):
    global seen
    while text not in seen[after:]:
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, seen
        seen += os.read(terminal, 65536)
    return len(seen)


place = wait_for(b"> ", 0)
os.write(terminal, b"given up\x03")
place = wait_for(b"^C", place)
os.write(terminal, b"th theme\x1b[D\x1b[D\x1b[D\x1b[D\x1b[D\x1b[De\x1b[F!\r")  # an e after "th", ! at the end
place = wait_for(b"\n", place)
while len(seen) < place + 300:  # in the middle of an answer without end
    seen += os.read(terminal, 65536)
os.write(terminal, b"\x03")
place = wait_for(b"> \x1b[K", place)
os.write(terminal, b"/reset\r\x1b[A\x1b[A\r")  # the line before /reset
place = wait_for(b"!\x1b[K", place)
while len(seen) < place + 300:
    seen += os.read(terminal, 65536)
os.write(terminal, b"\x03")
place = wait_for(b"> \x1b[K", place)
os.write(terminal, b"\x04")
while True:
    try:
        seen += os.read(terminal, 65536)
    except OSError:
        break
status = os.waitpid(pid, 0)[1]
assert os.waitstatus_to_exitcode(status) == 0, (status, seen[-500:])
first, second = json.load(open(out))["answers"]
assert first["prompt"] == second["prompt"] == "the theme!", (first["prompt"], second["prompt"])
assert first["end"] == second["end"] == "interrupted"
count = min(len(first["tokens"]), len(second["tokens"]))
assert count > 10 and first["tokens"][:count] == second["tokens"][:count]
)");
  const auto run = run_command(std::string(MHLA_PYTHON) + " '" + path("script.py") + "' '" + MHLA_PROGRAM + "' '" +
                               path("lm") + "' '" + path("chat.json") + "' 2>&1");
  EXPECT_EQ(run.exit_code, 0) << run.out;
}

}  // namespace
}  // namespace mhla::cli
