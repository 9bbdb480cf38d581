// The registry, asked for classifiers.
#include "models/classifiers.hpp"

#include "models/registry.hpp"

namespace mhla::models {
namespace {

constexpr std::string_view kTask = "classify";

}  // namespace

std::vector<std::string> classifier_names() { return model_names(kTask); }

std::shared_ptr<Classifier> make_classifier(const ClassifierOptions& options) {
  return std::static_pointer_cast<Classifier>(make_model(options, kTask));
}

std::shared_ptr<Classifier> make_classifier_of(const io::SafeTensors& file, const ClassifierOptions& options) {
  return std::static_pointer_cast<Classifier>(make_model_of(file, options, kTask));
}

}  // namespace mhla::models
