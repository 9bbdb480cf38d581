// The model a command uses when it is not told which.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace mhla::tasks {

// `given`, or the one .safetensors file for `task` ("classify", "generate", "language") of the folder `pretrained` beside the
// program, above it, or in the working folder. Throws a UsageError where there is none, or more than one.
std::filesystem::path pretrained_path(const std::string& given, std::string_view task);

}  // namespace mhla::tasks
