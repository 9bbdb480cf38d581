// Options as help, docs and completion see them.
#include <gtest/gtest.h>

#include "cli/describe/description.hpp"
#include "cli/describe/help.hpp"
#include "cli/support/checks.hpp"

namespace mhla::cli {
namespace {

class Described : public ::testing::Test {
 protected:
  Described() {
    program_.formatter(std::make_shared<HelpFormatter>());
    CLI::App* command = program_.add_subcommand("run", "Run it");
    command->add_option("files", files_, "What to read")->required()->type_name("FILE");
    command->add_option("--device", device_, "Where to run")
        ->check(CLI::IsMember({"cpu", "cuda"}))
        ->type_name("NAME")
        ->capture_default_str();
    command->add_option("--count", count_, "How many")->check(within(1, 9))->type_name("N")->default_str("as needed");
    command->add_flag("--quick", quick_, "Be quick");
    program_.add_subcommand("secret", "Not shown")->group("");
  }

  CLI::App program_{"A program", "program"};
  std::vector<std::string> files_;
  std::string device_ = "cpu";
  int count_ = 0;
  bool quick_ = false;
};

TEST_F(Described, EveryOptionIsReadBackFromTheCommandLine) {
  const CommandDescription program = describe(program_);
  ASSERT_EQ(program.commands.size(), 1U) << "hidden commands are left out";
  const CommandDescription& run = program.commands.front();
  EXPECT_EQ(run.path, "run");
  ASSERT_EQ(run.options.size(), 4U);
  EXPECT_EQ(run.options[0].name, "files");
  EXPECT_TRUE(run.options[0].positional && run.options[0].required && run.options[0].many);
  EXPECT_TRUE(run.options[0].takes_file());
  EXPECT_EQ(run.options[1].name, "--device");
  EXPECT_EQ(run.options[1].value, "NAME");
  EXPECT_EQ(run.options[1].choices, (std::vector<std::string>{"cpu", "cuda"}));
  EXPECT_EQ(run.options[1].initial, "cpu");
  EXPECT_EQ(run.options[2].limits, "1 to 9");
  EXPECT_EQ(run.options[2].initial, "as needed");
  EXPECT_TRUE(run.options[3].flag());
}

TEST_F(Described, HelpShowsAllowedValuesAndDefaults) {
  const std::string help = program_.get_subcommand("run")->help();
  for (const char* line :
       {"files FILE...            What to read [required]",
        "--device NAME            Where to run [cpu, cuda; default: cpu]",
        "--count N                How many [1 to 9; default: as needed]", "--quick                  Be quick\n"})
    EXPECT_NE(help.find(line), std::string::npos) << line << "\n" << help;
}

}  // namespace
}  // namespace mhla::cli
