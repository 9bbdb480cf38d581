// The classifier a command uses when it is not told which.
#pragma once

#include <filesystem>

namespace mhla::tasks {

// pretrained_path (tasks/pretrained.hpp) of a classifier.
std::filesystem::path classifier_path(const std::string& given);

}  // namespace mhla::tasks
