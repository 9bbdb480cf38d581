// Every option of every command that takes numbers refuses what is not one, by its name.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cli/commands.hpp"
#include "cli/describe/description.hpp"
#include "cli/support/checks.hpp"

namespace mhla::cli {
namespace {

TEST(ReadNumber, TakesTheWholeTextAsOneDecimalNumber) {
  EXPECT_EQ(read_number<int>("-12"), -12);
  EXPECT_EQ(read_number<std::uint64_t>("18446744073709551615"), ~std::uint64_t{0});
  EXPECT_EQ(read_number<double>("1e-3"), 1e-3);
  for (const char* text : {"", " 1", "1 ", "1x", "x", "0x1", "010", "1.0", "1e3", "+1", "2147483648", "nan"})
    EXPECT_FALSE(read_number<int>(text)) << text;
  EXPECT_FALSE(read_number<std::uint64_t>("-1"));
  for (const char* text : {"", " 1", "1 ", "1x", "0x1", "nan", "inf", "-inf", "1e999", "1,5"})
    EXPECT_FALSE(read_number<double>(text)) << text;
}

// Values of these are words, or tokens, which the tokenizer checks; of all other options they are numbers.
const std::set<std::string> kWords = {"NAME", "FILE", "PATH",  "FOLDER", "IMAGE",  "SHELL",
                                      "TEXT", "BOOL", "TOKEN", "POLICY", "ADDRESS"};
// Of these a fraction has a meaning.
const std::set<std::string> kFractions = {
    "--epochs",     "--lr",        "--min-lr",      "--weight-decay", "--clip",      "--ema",
    "--drop-path",  "--mixup",     "--cutmix",      "--smoothing",    "--erasing",   "--color-jitter",
    "--mean",       "--std",       "--min-time",    "--peer-time",    "--cfg-scale", "--cfg-interval",
    "--drop-class", "--mixing-lr", "--temperature", "--top-p",        "--min-p",     "--repetition-penalty"};

class NumberOptions : public ::testing::Test {
 protected:
  NumberOptions() {
    for (AddCommand* const add : kCommands) add(program_, outcome_);
    collect(program_, {});
    program_.add_option("--never", never_)->required();  // missed after all values are read, so that nothing is run
  }

  struct Numbers {
    std::vector<std::string> command;
    const CLI::Option* option;
  };

  void collect(const CLI::App& app, const std::vector<std::string>& path) {
    for (const CLI::Option* option : app.get_options()) {
      const OptionDescription described = describe(*option);
      if (!described.flag() && !kWords.contains(described.value)) options_.push_back({path, option});
    }
    for (const CLI::App* inner : app.get_subcommands([](const CLI::App*) { return true; })) {
      std::vector<std::string> longer = path;
      longer.push_back(inner->get_name());
      collect(*inner, longer);
    }
  }

  // What the program says where the option has this value, as often as it needs one.
  std::string answer(const Numbers& numbers, const std::string& value) {
    std::vector<std::string> arguments = numbers.command;
    arguments.push_back("word");  // for commands that need one; too much for others is said last
    arguments.push_back(numbers.option->get_name());
    arguments.insert(arguments.end(), static_cast<std::size_t>(numbers.option->get_items_expected_min()), value);
    std::ranges::reverse(arguments);  // as CLI11 wants them
    try {
      program_.parse(arguments);
    } catch (const CLI::RequiredError&) {
      return "";
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "run";
  }

  CLI::App program_{"", "mhla"};
  std::string never_;
  Outcome outcome_;
  std::vector<Numbers> options_;
};

TEST_F(NumberOptions, RefuseWhatIsNoNumberByTheirName) {
  EXPECT_GE(options_.size(), 45U);
  for (const Numbers& numbers : options_) {
    const std::string name = numbers.option->get_name();
    std::vector<std::string> wrong = {"",     "nan", "NaN", "-nan", "inf", "-inf", "infinity",
                                      "0x10", "x",   "1x",  "1 ",   " 1",  "-1",   "1e999"};
    if (!kFractions.contains(name))
      wrong.insert(wrong.end(), {"1.5", "1.0", "1e2", "010", "99999999999999999999999999"});
    for (const std::string& value : wrong) {
      const std::string said = answer(numbers, value);
      EXPECT_TRUE(said.starts_with(name + ": it is \"" + value + "\"; it must be a")) << name << ": " << said;
    }
  }
}

TEST_F(NumberOptions, TakeANumberThatIsAllowed) {
  for (const Numbers& numbers : options_) {
    const auto taken = [&](const char* value) { return answer(numbers, value).empty(); };
    EXPECT_TRUE(taken("1") || taken("0.5") || taken("1024")) << numbers.option->get_name();
  }
}

}  // namespace
}  // namespace mhla::cli
