// What a command says: a text for people and, where --json asks for it, the same for programs.
#pragma once

#include <CLI/CLI.hpp>
#include <ostream>
#include <string>

#include "io/json.hpp"
#include "report/text.hpp"

namespace mhla::cli {

class Output {
 public:
  void add_option(CLI::App& command);

  // The standard output, or the standard error stream where the JSON goes to the standard output.
  std::ostream& text() const;
  void json(const io::Json& value) const;  // nothing unless --json was given
  bool wants_json() const { return !target_.empty(); }

 private:
  std::string target_;
};

using report::grouped;
using report::table;
using report::three_digits;

}  // namespace mhla::cli
