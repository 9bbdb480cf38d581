// The text of --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace mhla::cli {

// Options as "--name VALUE", then their meaning, allowed values and default, in lines of bearable length.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option(const CLI::Option* option, bool positional) const override;
};

}  // namespace mhla::cli
