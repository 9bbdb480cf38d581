// `mhla eval generate` as part of `mhla eval`.
#pragma once

#include "cli/commands.hpp"

namespace mhla::cli {

void add_eval_generate(CLI::App& eval);

}  // namespace mhla::cli
