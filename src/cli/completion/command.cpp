// `mhla completion SHELL`: a script that completes commands, options and values.
#include <fmt/format.h>

#include <iostream>
#include <memory>

#include "cli/commands.hpp"
#include "cli/completion/scripts.hpp"

namespace mhla::cli {

void add_completion(CLI::App& program, Outcome&) {
  auto* command = program.add_subcommand("completion", "Print a script that completes commands, options and values");
  auto shell = std::make_shared<std::string>();
  command->add_option("shell", *shell, "Shell the script is for")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}))
      ->type_name("SHELL");
  command->footer(
      "Bash: add to ~/.bashrc  source <(mhla completion bash)\n"
      "Zsh:  add to ~/.zshrc   source <(mhla completion zsh)      (after compinit)\n"
      "Fish: once              mhla completion fish > ~/.config/fish/completions/mhla.fish");
  command->callback([&program, shell] {
    const CommandDescription described = describe(program);
    if (*shell == "bash") std::cout << bash::completion(described);
    if (*shell == "zsh") std::cout << zsh::completion(described);
    if (*shell == "fish") std::cout << fish::completion(described);
  });
}

}  // namespace mhla::cli
