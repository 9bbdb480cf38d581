// Completion for bash: one `case` per command, in it one per option that takes a value.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/scripts.hpp"

namespace mhla::cli::bash {
namespace {

constexpr const char* kHead = R"(# Completion of mhla in bash. Load it with: source <(mhla completion bash)

_mhla() {
  local word=${COMP_WORDS[COMP_CWORD]} command= option= words= values= files= i
  # The command: the leading words, as far as they name one.
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "${command:+$command }${COMP_WORDS[i]}" in
      @COMMANDS@) command="${command:+$command }${COMP_WORDS[i]}" ;;
      *) break ;;
    esac
  done
  # The option whose value the word may be, with "..." unless it stands right before. Bash cuts --option=value in three.
  [[ $word == "=" ]] && word=
  for ((i = COMP_CWORD - 1; i > 0; --i)); do
    [[ ${COMP_WORDS[i]} == --* ]] && break
  done
  ((i > 0)) && option=${COMP_WORDS[i]}
  ((i > 0 && i < COMP_CWORD - 1)) && [[ ${COMP_WORDS[i + 1]} != "=" ]] && option+=...
  [[ $word == -* ]] && option=
)";

constexpr const char* kTail = R"(
  if [[ $files ]]; then
    compopt -o filenames
    mapfile -t COMPREPLY < <(compgen "$files" -- "$word")
  elif [[ $values ]]; then
    # After a comma, the next of several values.
    local before=
    [[ $word == *,* ]] && before=${word%,*},
    mapfile -t COMPREPLY < <(compgen -P "$before" -W "$values" -- "${word##*,}")
  else
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
  fi
}
complete -F _mhla mhla
)";

// What may follow the option: allowed values, files, or something that cannot be known.
std::string value_case(const OptionDescription& option) {
  std::string what;
  if (!option.choices.empty()) what = fmt::format(" values=\"{}\"", fmt::join(option.choices, " "));
  if (option.takes_file()) what = " files=-f";
  if (option.takes_folder()) what = " files=-d";
  const std::string further = option.many ? fmt::format(" | {}...", option.name) : "";
  return fmt::format("        {}{}) words={} ;;\n", option.name, further, what);
}

std::string command_case(const CommandDescription& command) {
  std::vector<std::string> words;
  words.reserve(command.commands.size());
  std::string cases, positional;
  for (const CommandDescription& inner : command.commands) words.push_back(inner.name);
  for (const OptionDescription& option : command.options) {
    if (!option.positional) words.push_back(option.name);
    if (!option.positional && !option.flag()) cases += value_case(option);
    if (!option.positional) continue;
    if (!option.choices.empty()) positional = fmt::format("words=\"{}\"", fmt::join(option.choices, " "));
    if (option.takes_file()) positional = "files=-f";
  }
  words.emplace_back("--help");
  std::string text = fmt::format("    \"{}\")\n      words=\"{}\"\n", command.path, fmt::join(words, " "));
  if (!cases.empty()) text += fmt::format("      case \"$option\" in\n{}      esac\n", cases);
  if (!positional.empty()) text += fmt::format("      [[ $words && $word != -* ]] && {}\n", positional);
  return text + "      ;;\n";
}

}  // namespace

std::string completion(const CommandDescription& program) {
  std::vector<std::string> paths;
  std::string cases;
  for (const CommandDescription* command : all_commands(program)) {
    if (!command->path.empty()) paths.push_back(fmt::format("\"{}\"", command->path));
    cases += command_case(*command);
  }
  std::string head = kHead;
  constexpr std::string_view kCommands = "@COMMANDS@";
  head.replace(head.find(kCommands), kCommands.size(), fmt::format("{}", fmt::join(paths, " | ")));
  return head + "  case \"$command\" in\n" + cases + "  esac" + kTail;
}

}  // namespace mhla::cli::bash
