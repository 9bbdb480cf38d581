// Lines from the standard input: edited on a terminal, else as they are.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace mhla::cli {

class LineReader {
 public:
  explicit LineReader(std::string prompt);

  bool terminal() const { return terminal_; }

  // Without its end; nothing at the end of the input, or for Ctrl-D on an empty line. Ctrl-C begins the line anew.
  std::optional<std::string> read();

 private:
  std::optional<std::string> edited();

  std::string prompt_;
  bool terminal_;
  std::vector<std::string> history_;
};

}  // namespace mhla::cli
