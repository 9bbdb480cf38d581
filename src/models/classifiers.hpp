// Image classifiers by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/base/classifier.hpp"

namespace mhla::models {

std::vector<std::string> classifier_names();  // deit_tiny, ...

// Initial values come from torch's generator (torch::manual_seed). Throws an Error that names the wrong option.
std::shared_ptr<Classifier> make_classifier(const ClassifierOptions& options);

}  // namespace mhla::models
