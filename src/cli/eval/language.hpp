// `mhla eval language` as part of `mhla eval`.
#pragma once

#include "cli/commands.hpp"

namespace mhla::cli {

void add_eval_language(CLI::App& eval);

}  // namespace mhla::cli
