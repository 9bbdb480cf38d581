// A training run of an image classifier from options to files.
#pragma once

#include <filesystem>
#include <ostream>
#include <string>

#include "io/json.hpp"
#include "tasks/classify/recipe.hpp"
#include "tasks/training_run.hpp"

namespace mhla::tasks {

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
