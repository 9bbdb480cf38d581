// Completion for zsh: one function per command, with _arguments for its options.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/completion/scripts.hpp"

namespace mhla::cli::zsh {
namespace {

std::string function_name(const CommandDescription& command) {
  std::string name = "_mhla" + std::string(command.path.empty() ? "" : "_") + command.path;
  std::ranges::replace(name, ' ', '_');
  return name;
}

// For a text between single quotes; `special` are characters that mean something to the reader of the text.
std::string escaped(const std::string& text, const std::string& special) {
  std::string result;
  for (const char letter : text) {
    if (special.find(letter) != std::string::npos) result += '\\';
    result += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  }
  return result;
}

std::string action(const OptionDescription& option) {
  if (option.takes_file()) return "_files";
  if (option.takes_folder()) return "_files -/";
  if (option.choices.empty()) return " ";
  const std::string choices = fmt::format("{}", fmt::join(option.choices, " "));
  return option.many ? fmt::format("_values -s , {} {}", option.value, choices) : fmt::format("({})", choices);
}

std::string argument(const OptionDescription& option) {
  if (option.positional)
    return fmt::format("{}:{}:{}", option.many ? "*" : "1", escaped(option.value, ":"), action(option));
  const std::string about = escaped(option.about, "[]:");
  if (option.flag()) return fmt::format("{}[{}]", option.name, about);
  return fmt::format("{}[{}]:{}:{}", option.name, about, escaped(option.value, ":"), action(option));
}

std::string leaf_function(const CommandDescription& command) {
  std::string text = function_name(command) + "() {\n  _arguments -s \\\n";
  for (const OptionDescription& option : command.options) text += fmt::format("    '{}' \\\n", argument(option));
  return text + "    '--help[Print this help message and exit]'\n}\n\n";
}

std::string group_function(const CommandDescription& command) {
  std::string names, calls;
  for (const CommandDescription& inner : command.commands) {
    names += fmt::format("        '{}:{}'\n", inner.name, escaped(inner.about, ":"));
    calls += fmt::format("        {}) {} ;;\n", inner.name, function_name(inner));
  }
  return fmt::format(
      "{}() {{\n"
      "  local line state\n"
      "  _arguments -C '--help[Print this help message and exit]' '1:command:->command' '*::argument:->argument'\n"
      "  case $state in\n"
      "    command)\n"
      "      local -a commands=(\n{}      )\n"
      "      _describe command commands\n"
      "      ;;\n"
      "    argument)\n"
      "      case $words[1] in\n{}      esac\n"
      "      ;;\n"
      "  esac\n"
      "}}\n\n",
      function_name(command), names, calls);
}

}  // namespace

std::string completion(const CommandDescription& program) {
  std::string text = "#compdef mhla\n# Completion of mhla in zsh. Load it with: source <(mhla completion zsh)\n\n";
  for (const CommandDescription* command : all_commands(program))
    text += command->commands.empty() ? leaf_function(*command) : group_function(*command);
  // Either a file of $fpath, run when needed, or sourced.
  return text + "if [[ $funcstack[1] == _mhla ]]; then\n  _mhla \"$@\"\nelse\n  compdef _mhla mhla\nfi\n";
}

}  // namespace mhla::cli::zsh
