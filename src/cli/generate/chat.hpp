// A conversation line by line.
#pragma once

#include "cli/generate/job.hpp"

namespace mhla::cli {

// Until the end of the input; returns the exit code.
int chat(const GenerateOptions& options, const Output& output);

}  // namespace mhla::cli
