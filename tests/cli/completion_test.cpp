// What the shells are told: the scripts of `mhla completion`, run where the shell is installed.
#include <gtest/gtest.h>

#include "io/file.hpp"
#include "support/program.hpp"
#include "support/temporary_folder.hpp"

namespace mhla {
namespace {

using testing::Finished;
using testing::run_command;
using testing::run_mhla;

class Completion : public ::testing::Test {
 protected:
  std::string script(const std::string& shell) {
    const Finished run = run_mhla("completion " + shell);
    EXPECT_EQ(run.exit_code, 0);
    io::write_file(folder_ / shell, run.out);
    return (folder_ / shell).string();
  }

  // What bash offers for the last of the words.
  std::string offered(const std::string& words) {
    const Finished run = run_command("bash -c 'source \"" + script("bash") + "\"; COMP_WORDS=(" + words +
                                     "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _mhla 2>/dev/null; "
                                     "echo \"${COMPREPLY[*]}\"'");
    EXPECT_EQ(run.exit_code, 0) << run.out;
    return run.out.substr(0, run.out.find('\n'));
  }

  testing::TemporaryFolder folder_;
};

TEST_F(Completion, BashOffersCommandsOptionsAndValues) {
  EXPECT_EQ(offered("mhla be"), "bench");
  EXPECT_EQ(offered("mhla bench \"\""), "op model decode --help");
  EXPECT_EQ(offered("mhla bench op --d"), "--device --dtype");
  EXPECT_EQ(offered("mhla bench op --device c"), "cpu cuda");
  EXPECT_EQ(offered("mhla bench op --device = c"), "cpu cuda");
  EXPECT_EQ(offered("mhla train classify --recipe \"\""), "small deit");
  EXPECT_EQ(offered("mhla completion \"\""), "bash zsh fish");
}

TEST_F(Completion, BashOffersFurtherValuesOfAListAndThenOptions) {
  EXPECT_EQ(offered("mhla bench op --passes fwd f"), "fwd fwd+bwd");
  EXPECT_EQ(offered("mhla bench op --passes fwd,f"), "fwd,fwd fwd,fwd+bwd");
  EXPECT_EQ(offered("mhla bench op --passes fwd --q"), "--quick");
  EXPECT_EQ(offered("mhla bench op --n-max \"\""), "");
  EXPECT_EQ(offered("mhla bench op --quick --n-m"), "--n-max");
}

TEST_F(Completion, BashOffersFilesWhereAFileIsMeant) {
  io::write_file(folder_ / "weights.safetensors", "");
  const std::string start = (folder_ / "wei").string(), whole = (folder_ / "weights.safetensors").string();
  EXPECT_EQ(offered("mhla inspect --summary " + start), whole);
  EXPECT_EQ(offered("mhla bench op --chart " + start), whole);
}

TEST_F(Completion, EveryScriptNamesEveryCommandAndItsOptions) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = run_mhla(std::string("completion ") + shell).out;
    for (const char* word : {"demo", "selftest", "bench", "analyze", "classify", "inspect", "parity", "train", "eval",
                             "devices", "version", "completion", "fresh-memory", "checkpoint-every", "fwd+bwd"})
      EXPECT_NE(text.find(word), std::string::npos) << shell << " " << word;
  }
}

TEST_F(Completion, EveryScriptIsWellFormedForItsShell) {
  EXPECT_EQ(run_command("bash -n '" + script("bash") + "'").exit_code, 0);
  for (const char* shell : {"zsh", "fish"}) {
    if (run_command(std::string("command -v ") + shell).exit_code != 0) continue;  // not installed here
    EXPECT_EQ(run_command(std::string(shell) + " -n '" + script(shell) + "'").exit_code, 0) << shell;
  }
}

}  // namespace
}  // namespace mhla
