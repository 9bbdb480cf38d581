// `mhla eval classify` as part of `mhla eval`.
#pragma once

#include "cli/commands.hpp"

namespace mhla::cli {

void add_eval_classify(CLI::App& eval);

}  // namespace mhla::cli
