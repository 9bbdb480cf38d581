// A training run of an image generator from options to files.
#pragma once

#include <filesystem>
#include <ostream>

#include "io/json.hpp"
#include "tasks/generate/recipe.hpp"
#include "tasks/training_run.hpp"

namespace mhla::tasks {

struct TrainedGenerator {
  bool finished = false;  // or interrupted
  std::int64_t steps = 0;
  io::Json results;               // of the best weights: "val/mse", ...
  io::Json settings;              // what a run that is resumed must agree on
  std::filesystem::path weights;  // the file with the best
};

// Every process of `communicator` calls it; the first one writes files and `text`.
TrainedGenerator train_generator(const TrainGenerateOptions& options, const TrainingDevice& place,
                                 train::Communicator& communicator, std::ostream& text);

}  // namespace mhla::tasks
