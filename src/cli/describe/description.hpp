// What the command line accepts. Commands describe their options to CLI11 once; help, docs and shell completion are
// drawn from what is read back here.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace mhla::cli {

struct OptionDescription {
  std::string name;                  // "--shape", or "files" for words without a dash
  std::string value;                 // "NAME", "FILE"; empty for a flag
  std::vector<std::string> choices;  // allowed values, where they can be listed
  std::string limits;                // "1 to 1024"; empty without any
  std::string initial;               // the default; empty without any
  std::string about;
  std::string group;  // heading it stands under
  bool positional = false, required = false;
  bool many = false;  // takes any number of values

  bool flag() const { return value.empty(); }
  bool takes_file() const { return value == "FILE" || value == "PATH" || value == "IMAGE"; }
  bool takes_folder() const { return value == "FOLDER"; }
  std::string allowed() const;  // "cpu, cuda", "1 to 1024", or empty
};

struct CommandDescription {
  std::string path;  // "bench op"; empty for the program
  std::string name;  // "op"
  std::string about;
  std::vector<OptionDescription> options;    // without --help
  std::vector<CommandDescription> commands;  // its own, without hidden ones
};

OptionDescription describe(const CLI::Option& option);
CommandDescription describe(const CLI::App& app);

// The program and all its commands, parents first.
std::vector<const CommandDescription*> all_commands(const CommandDescription& program);

}  // namespace mhla::cli
