// Prompts of the command line, answered.
#pragma once

#include "cli/generate/job.hpp"

namespace mhla::cli {

// Returns the exit code. Prints the answer as it comes; of several, each when all are there.
int answer_prompts(const GenerateOptions& options, const Output& output);

}  // namespace mhla::cli
