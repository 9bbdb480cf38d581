// Completion for fish: one `complete` per command and option.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/scripts.hpp"

namespace mhla::cli::fish {
namespace {

constexpr const char* kHead = R"(# Completion of mhla in fish. Save it as ~/.config/fish/completions/mhla.fish

# Whether the command line begins with these commands.
function __mhla_in
  set -l words (commandline -opc)[2..]
  test (count $words) -ge (count $argv); and test "$words[1..$(count $argv)]" = "$argv"
end

# Whether these commands are all there is before the cursor.
function __mhla_at
  set -l words (commandline -opc)[2..]
  test "$words" = "$argv"
end

complete -c mhla -f
complete -c mhla -l help -d 'Print this help message and exit'
)";

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char letter : text) {
    if (letter == '\'' || letter == '\\') result += '\\';
    result += letter;
  }
  return result + "'";
}

std::string value(const OptionDescription& option) {
  if (option.flag()) return "";
  if (!option.choices.empty()) return fmt::format(" -x -a '{}'", fmt::join(option.choices, " "));
  if (option.takes_folder()) return " -x -a '(__fish_complete_directories)'";
  return option.takes_file() ? " -r -F" : " -x";
}

std::string lines_of(const OptionDescription& option, const std::string& inside) {
  const std::string start = fmt::format("complete -c mhla -n '{}'", inside);
  if (!option.positional)
    return fmt::format("{} -l {}{} -d {}\n", start, option.name.substr(2), value(option), quoted(option.about));
  if (!option.choices.empty()) return fmt::format("{} -a '{}'\n", start, fmt::join(option.choices, " "));
  return option.takes_file() ? fmt::format("{} -F\n", start) : "";
}

}  // namespace

std::string completion(const CommandDescription& program) {
  std::string text = kHead;
  for (const CommandDescription* command : all_commands(program)) {
    for (const CommandDescription& inner : command->commands)
      text += fmt::format("complete -c mhla -n '__mhla_at{}' -a {} -d {}\n",
                          (command->path.empty() ? "" : " ") + command->path, inner.name, quoted(inner.about));
    for (const OptionDescription& option : command->options) text += lines_of(option, "__mhla_in " + command->path);
  }
  return text;
}

}  // namespace mhla::cli::fish
