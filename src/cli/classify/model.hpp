// The classifier a command uses when it is not told which.
#pragma once

#include <filesystem>

namespace mhla::cli {

// `given`, or the one .safetensors file of the folder `pretrained` beside the program, above it, or in the working
// folder. Throws a UsageError where there is none, or more than one.
std::filesystem::path classifier_path(const std::string& given);

}  // namespace mhla::cli
