// `mhla bench op` as part of `mhla bench`.
#pragma once

#include "cli/commands.hpp"

namespace mhla::cli {

void add_bench_op(CLI::App& bench, Outcome& outcome);

}  // namespace mhla::cli
