// `mhla bench decode` as part of `mhla bench`.
#pragma once

#include "cli/commands.hpp"

namespace mhla::cli::bench {

void add_decode(CLI::App& bench, Outcome& outcome);

}  // namespace mhla::cli::bench
