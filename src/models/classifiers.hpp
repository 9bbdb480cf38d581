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

// The same for a file that holds all its tensors: refused at once where it has too few elements for that.
std::shared_ptr<Classifier> make_classifier_of(const io::SafeTensors& file, const ClassifierOptions& options);

}  // namespace mhla::models
