// Lines of the help.
#include "cli/describe/help.hpp"

#include <fmt/format.h>

#include <sstream>

#include "cli/describe/description.hpp"

namespace mhla::cli {
namespace {

constexpr std::size_t kNameWidth = 27, kLineWidth = 118;

// "Device to run on [cpu, cuda; default: cpu]"
std::string meaning(const OptionDescription& option) {
  std::string notes = option.allowed();
  const auto note = [&](const std::string& text) { notes += (notes.empty() ? "" : "; ") + text; };
  if (option.required) note("required");
  if (!option.initial.empty()) note("default: " + option.initial);
  return notes.empty() ? option.about : fmt::format("{} [{}]", option.about, notes);
}

// Breaks at spaces; further lines begin below the first.
std::string wrapped(const std::string& text, std::size_t indent) {
  std::string lines;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (column > indent && column + 1 + word.size() > kLineWidth) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines;
}

}  // namespace

HelpFormatter::HelpFormatter() {
  column_width(kNameWidth);
  label("Positionals", "Arguments");
  label("Subcommands", "Commands");
  label("SUBCOMMAND", "COMMAND");
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool positional) const {
  const OptionDescription description = describe(*option);
  std::string name = "  " + (positional ? description.name : option->get_name(false, true));
  if (!description.flag()) name += ' ' + description.value;
  if (description.many) name += "...";
  const std::string gap =
      name.size() + 2 > kNameWidth ? '\n' + std::string(kNameWidth, ' ') : std::string(kNameWidth - name.size(), ' ');
  return name + gap + wrapped(meaning(description), kNameWidth) + '\n';
}

}  // namespace mhla::cli
