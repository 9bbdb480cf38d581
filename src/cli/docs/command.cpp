// `mhla docs`: the options of every command as tables for docs/cli.md, which tools/cli_docs.py refreshes.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>

#include "cli/commands.hpp"
#include "cli/describe/description.hpp"

namespace mhla::cli {
namespace {

constexpr const char* kCommon = "--json";  // described once, for all commands

std::string cell(std::string text) {
  for (std::size_t place = 0; (place = text.find('|', place)) != std::string::npos; place += 2)
    text.insert(place, "\\");
  return text;
}

std::string code(const std::string& text) { return text.empty() ? "" : fmt::format("`{}`", cell(text)); }

std::string allowed(const OptionDescription& option) {
  if (option.choices.empty()) return option.limits;
  std::vector<std::string> choices;
  choices.reserve(option.choices.size());
  for (const std::string& choice : option.choices) choices.push_back(code(choice));
  return fmt::format("{}", fmt::join(choices, ", "));
}

std::string row(const OptionDescription& option) {
  std::string name = option.name;
  if (!option.flag()) name += (name.empty() ? "" : " ") + option.value + (option.many ? "..." : "");
  std::string meaning = cell(option.about);
  if (const std::string values = allowed(option); !values.empty()) meaning += fmt::format(" ({})", values);
  return fmt::format("| {} | {} | {} |\n", code(name), option.required ? "required" : cell(option.initial), meaning);
}

// A table per heading the help has.
std::string tables(const CommandDescription& command) {
  std::vector<std::string> groups;
  for (const OptionDescription& option : command.options)
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  std::string text;
  for (const std::string& group : groups) {
    if (groups.size() > 1) text += fmt::format("{}{}:\n\n", text.empty() ? "" : "\n", group);
    text += "| option | default | meaning |\n|---|---|---|\n";
    for (const OptionDescription& option : command.options)
      if (option.group == group) text += row(option);
  }
  return text;
}

}  // namespace

void add_docs(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("docs", "Print the options of every command as Markdown tables");
  command->group("");  // for the project's own use: not in the help
  command->callback([&program] {
    const CommandDescription all = describe(program);
    for (const CommandDescription* each : all_commands(all)) {
      CommandDescription one = *each;
      std::erase_if(one.options, [](const OptionDescription& option) { return option.name == kCommon; });
      if (!one.options.empty())
        std::cout << fmt::format("<!-- options: {} -->\n{}<!-- end -->\n", one.path, tables(one));
    }
  });
}

}  // namespace mhla::cli
