// Options of a command that has many, by headings of its help.
#pragma once

#include <CLI/CLI.hpp>

namespace mhla::cli {

// Options under one heading of the help.
class OptionGroup {
 public:
  OptionGroup(CLI::App& command, const char* heading) : command_(command), heading_(heading) {}

  // One that has a default of its own.
  template <typename Value>
  CLI::Option* add(const char* name, Value& value, const char* type, const char* about) {
    return command_.add_option(name, value, about)->type_name(type)->capture_default_str()->group(heading_);
  }

  // One whose default comes from elsewhere: the recipe, or what `initial` says.
  template <typename Value>
  CLI::Option* add_open(const char* name, Value& value, const char* type, const char* about,
                        const char* initial = "by --recipe") {
    return command_.add_option(name, value, about)->type_name(type)->default_str(initial)->group(heading_);
  }

  void flag(const char* name, bool& value, const char* about) {
    command_.add_flag(name, value, about)->group(heading_);
  }

 private:
  CLI::App& command_;
  const char* heading_;
};

}  // namespace mhla::cli
