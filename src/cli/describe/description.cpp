// Reads the tree of CLI11.
#include "cli/describe/description.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace mhla::cli {
namespace {

// CLI11 writes "VALUE:{a,b}" for a set and "VALUE:text" for another check.
void split_type(const std::string& type, OptionDescription& description) {
  const std::size_t colon = type.find(':');
  description.value = type.substr(0, colon);
  if (colon == std::string::npos) return;
  const std::string check = type.substr(colon + 1);
  if (check.starts_with('{') && check.ends_with('}'))
    description.choices = CLI::detail::split(check.substr(1, check.size() - 2), ',');
  else
    description.limits = check;
}

CommandDescription describe_command(const CLI::App& app, const std::string& path) {
  CommandDescription command{path, app.get_name(), app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options())
    if (option != app.get_help_ptr()) command.options.push_back(describe(*option));
  for (const CLI::App* inner : app.get_subcommands([](const CLI::App* any) { return !any->get_group().empty(); }))
    command.commands.push_back(describe_command(*inner, path + (path.empty() ? "" : " ") + inner->get_name()));
  return command;
}

}  // namespace

std::string OptionDescription::allowed() const {
  return choices.empty() ? limits : fmt::format("{}", fmt::join(choices, ", "));
}

OptionDescription describe(const CLI::Option& option) {
  OptionDescription description;
  description.positional = option.get_positional();
  description.name = option.get_name(description.positional, false);
  description.initial = option.get_default_str();
  description.about = option.get_description();
  description.group = option.get_group();
  description.required = option.get_required();
  description.many = option.get_expected_max() == CLI::detail::expected_max_vector_size;
  if (option.get_type_size() != 0) split_type(option.get_type_name(), description);
  return description;
}

CommandDescription describe(const CLI::App& app) { return describe_command(app, ""); }

std::vector<const CommandDescription*> all_commands(const CommandDescription& program) {
  std::vector<const CommandDescription*> all = {&program};
  for (const CommandDescription& command : program.commands) {
    const auto inner = all_commands(command);
    all.insert(all.end(), inner.begin(), inner.end());
  }
  return all;
}

}  // namespace mhla::cli
