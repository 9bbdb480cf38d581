// The pretrained classifier.
#include "tasks/classify/pretrained.hpp"

#include "tasks/pretrained.hpp"

namespace mhla::tasks {

std::filesystem::path classifier_path(const std::string& given) { return pretrained_path(given, "classify"); }

}  // namespace mhla::tasks
