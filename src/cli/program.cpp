// The command line as a whole: help, dispatch and exit codes.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <iostream>
#include <memory>
#include <span>
#include <string_view>

#include "cli/commands.hpp"
#include "cli/describe/help.hpp"
#include "cli/failure.hpp"

namespace mhla::cli {
namespace {

constexpr int kFailure = 1;
constexpr int kUsage = 2;

constexpr const char* kDescription =
    "Multi-Head Linear Attention: tokens are cut into blocks, each block is summarised once, and every block reads its "
    "own\n"
    "learned mixture of the summaries. Linear in the number of tokens.";

constexpr const char* kFooter =
    "Examples:\n"
    "  mhla demo                                  a minute's tour; writes out/demo/report.html\n"
    "  mhla bench op --shape 1024px --json -      time the operator against PyTorch, rows as JSON\n"
    "  mhla analyze --grid 32 32 --blocks 4 4     rank and entropy of attention matrices, heat maps, curves\n"
    "  mhla classify photo.jpg                    what is in an image, by the pretrained model\n"
    "  mhla sample --class Forest -o forest.png   draw pictures with the pretrained generator\n"
    "  mhla generate -p \"Once upon a time\"        go on with a text, by a language model\n"
    "  mhla parity case.safetensors               check this build against stored results\n"
    "\nCommands that find something out take --json FILE (\"-\" for the standard output); all take --help.\n"
    "Exit code: 0 success, 1 a check or a run failed, 2 the command line was wrong.";

// Before anything else is parsed: an unknown word would be passed over, and the next one taken for the command.
void check_commands(const CLI::App& program, std::span<const char* const> arguments) {
  const CLI::App* place = &program;
  for (const std::string_view word : arguments) {
    const auto commands = place->get_subcommands([](const CLI::App*) { return true; });
    if (commands.empty() || word.starts_with('-')) return;
    const auto found =
        std::ranges::find_if(commands, [&](const CLI::App* command) { return command->get_name() == word; });
    if (found == commands.end())
      throw UsageError(fmt::format("\"{}\" is no command{}; it may be: {}", word,
                                   place == &program ? "" : " of " + place->get_name(), names_of_commands(*place)));
    place = *found;
  }
}

}  // namespace

std::string names_of_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App* any) { return !any->get_group().empty(); }))
    names += fmt::format("{}{}", names.empty() ? "" : ", ", command->get_name());
  return names;
}

CLI::App& add_group(CLI::App& program, const std::string& name, const std::string& about, const std::string& missing) {
  CLI::App* const group = program.add_subcommand(name, about);
  group->require_subcommand(0, 1);
  group->callback([group, missing] {
    if (group->get_subcommands().empty())
      throw UsageError(
          fmt::format("{}: {} is missing; it may be: {}", group->get_name(), missing, names_of_commands(*group)));
  });
  return *group;
}

int run_program(int argc, const char* const* argv) {
  CLI::App program(kDescription, "mhla");
  program.formatter(std::make_shared<HelpFormatter>());
  program.group("Commands");
  program.require_subcommand(0, 1);
  program.failure_message(CLI::FailureMessage::simple);
  Outcome outcome;
  try {
    for (AddCommand* const add : kCommands) add(program, outcome);
    program.footer(kFooter);  // after the commands, which would inherit it
    if (argc > 1) check_commands(program, {argv + 1, static_cast<std::size_t>(argc - 1)});
    program.parse(argc, argv);
    if (program.get_subcommands().empty())
      throw UsageError("a command is missing; it may be: " + names_of_commands(program));
    return outcome.exit_code;
  } catch (const CLI::ParseError& error) {
    return program.exit(error) == 0 ? 0 : kUsage;
  } catch (const UsageError& error) {
    std::cerr << "mhla: " << error.what() << "\nRun with --help for more information.\n";
    return kUsage;
  } catch (const std::exception& error) {
    std::cerr << "mhla: " << failure_message(error) << '\n';
    return kFailure;
  }
}

}  // namespace mhla::cli
