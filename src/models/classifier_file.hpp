// A trained classifier in one safetensors file: weights, and in its metadata all that is needed to use them.
//
//   mhla.config         the ClassifierOptions
//   mhla.classes        names of the classes, a list
//   mhla.preprocessing  {"mean": [r, g, b], "std": [r, g, b], "crop_fraction": x}: pixel values are from 0 to 1
#pragma once

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/base/classifier.hpp"

namespace mhla::models {

struct Preprocessing {
  std::array<float, 3> mean = {0.485F, 0.456F, 0.406F};  // ImageNet's
  std::array<float, 3> std = {0.229F, 0.224F, 0.225F};
  double crop_fraction = 0.875;  // of the resized image, kept by the centre crop
};

struct ClassifierFacts {
  std::vector<std::string> classes;  // empty: not known
  Preprocessing preprocessing;
};

// `more` is added to the metadata: how it was trained, what it reached.
void save_classifier(const Classifier& classifier, const std::filesystem::path& path, const ClassifierFacts& facts,
                     at::ScalarType dtype = at::kFloat, const io::Json& more = io::Json::object());

struct LoadedClassifier {
  std::shared_ptr<Classifier> model;  // float32, in evaluation mode
  ClassifierFacts facts;
};
LoadedClassifier load_classifier(const std::filesystem::path& path, const at::Device& device = at::kCPU);

}  // namespace mhla::models
