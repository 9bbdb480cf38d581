// What a command says: a text for people and, where --json asks for it, the same for programs.
#pragma once

#include <CLI/CLI.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "io/json.hpp"

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

// Columns as wide as their widest cell; numbers are right-aligned, words left-aligned.
std::string table(const std::vector<std::string>& header, const std::vector<std::vector<std::string>>& rows);

// At least three significant digits: 0.0123 -> "0.0123", 12.34 -> "12.3", 1234.5 -> "1,234".
std::string three_digits(double value);

// 65536 -> "65,536"
std::string grouped(double value);

}  // namespace mhla::cli
