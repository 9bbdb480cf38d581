// What a training run of an image classifier can be told, and the recipes that fill in the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/augmentation.hpp"
#include "models/base/classifier.hpp"
#include "tasks/training_options.hpp"

namespace mhla::tasks {

struct TrainClassifyOptions : TrainingOptions {
  std::string recipe = "small";

  models::ClassifierOptions model;  // with the flags below
  std::optional<std::int64_t> patch;
  std::optional<double> drop_path, epochs;
  std::vector<std::int64_t> image_size;
  bool no_lepe = false;

  std::string augment, rand_augment;
  std::optional<double> mixup, cutmix, smoothing, erasing, color_jitter;
  std::vector<double> mean, deviation;
};

// Recipe and flags put together.
struct ClassifyRecipe {
  double epochs, lr, warmup_from, weight_decay, clip, ema;
  std::int64_t batch;
  double warmup_epochs;
  data::Augmentation augmentation;
  models::ClassifierOptions model;
};
ClassifyRecipe resolve_recipe(const TrainClassifyOptions& options);

}  // namespace mhla::tasks
