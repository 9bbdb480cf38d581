// The --json option.
#include "cli/support/output.hpp"

#include <iostream>

namespace mhla::cli {

void Output::add_option(CLI::App& command) {
  command.add_option("--json", target_, "Also write the result as JSON; \"-\" is the standard output")
      ->type_name("FILE");
}

std::ostream& Output::text() const { return target_ == "-" ? std::cerr : std::cout; }

void Output::json(const io::Json& value) const {
  if (wants_json()) io::write_json(target_, value);
}

}  // namespace mhla::cli
