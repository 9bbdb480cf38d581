// A training run of a language model from options to files.
#pragma once

#include <filesystem>
#include <ostream>

#include "io/json.hpp"
#include "tasks/language/recipe.hpp"
#include "tasks/training_run.hpp"

namespace mhla::tasks {

struct TrainedLanguageModel {
  bool finished = false;  // or interrupted
  std::int64_t steps = 0;
  io::Json results;               // of the best weights: "val/loss", ...
  io::Json settings;              // what a run that is resumed must agree on
  std::filesystem::path weights;  // the file with the best; its folder has the tokenizer too
};

// Every process of `communicator` calls it; the first one writes files and `text`.
TrainedLanguageModel train_language_model(const TrainLanguageOptions& options, const TrainingDevice& place,
                                          train::Communicator& communicator, std::ostream& text);

}  // namespace mhla::tasks
