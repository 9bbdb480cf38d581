// A training run of an image classifier from options to files.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>

#include "io/json.hpp"
#include "tasks/classify/recipe.hpp"
#include "train/communicator.hpp"

namespace mhla::tasks {

// Where it runs.
struct TrainingDevice {
  at::Device device = at::kCPU;
  std::string name{};  // for the report, and to know the device's peak
  bool bf16 = false;   // matrix products
};

struct TrainedClassifier {
  bool finished = false;  // or interrupted
  std::int64_t steps = 0;
  io::Json results;  // of the best weights: "val/top1", "test/top1", ...
  std::int64_t bad_images = 0;
  io::Json settings;              // what a run that is resumed must agree on
  std::filesystem::path weights;  // the file with the best
};

// Every process of `communicator` calls it; the first one writes files and `text`.
TrainedClassifier train_classifier(const TrainClassifyOptions& options, const TrainingDevice& place,
                                   train::Communicator& communicator, std::ostream& text);

}  // namespace mhla::tasks
