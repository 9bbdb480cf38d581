// A trained classifier in one safetensors file: weights, and in its metadata all that is needed to use them.
//
//   mhla.config         the ClassifierOptions
//   mhla.classes        names of the classes, a list
//   mhla.normalization  {"mean": [r, g, b], "std": [r, g, b]} of pixel values in 0..1
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/safetensors.hpp"
#include "models/classifier.hpp"

namespace mhla::models {

struct ImageNormalization {
  std::array<double, 3> mean = {0.485, 0.456, 0.406};  // ImageNet's
  std::array<double, 3> deviation = {0.229, 0.224, 0.225};
};

struct ClassifierFacts {
  std::vector<std::string> classes;  // empty: not known
  ImageNormalization normalization;
};

// `more` is added to the metadata: how it was trained, what it reached.
void save_classifier(const Classifier& classifier, const std::filesystem::path& path, const ClassifierFacts& facts,
                     at::ScalarType dtype = at::kFloat, const io::Json& more = io::Json::object());

struct LoadedClassifier {
  std::shared_ptr<Classifier> model;  // float32, in evaluation mode
  ClassifierFacts facts;
};
LoadedClassifier load_classifier(const std::filesystem::path& path, const at::Device& device = at::kCPU);

// The options in a file's metadata, if there are any.
std::optional<ClassifierOptions> stored_options(const io::SafeTensors& file);

}  // namespace mhla::models
