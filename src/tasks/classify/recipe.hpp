// What a training run of an image classifier can be told, and the recipes that fill in the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/augmentation.hpp"
#include "models/base/classifier.hpp"

namespace mhla::tasks {

// Options that are not given take their values from the recipe.
struct TrainClassifyOptions {
  std::string data, out = "out/train", init;
  std::string recipe = "small";

  models::ClassifierOptions model;  // with the flags below
  std::optional<std::int64_t> patch;
  std::optional<double> drop_path;
  std::vector<std::int64_t> image_size;
  bool no_lepe = false;

  std::optional<double> epochs, lr, weight_decay, clip, ema;
  std::optional<std::int64_t> batch, warmup;
  double min_lr = 0.0;
  std::string schedule = "cosine";
  std::int64_t accumulate = 1;

  std::string augment, rand_augment;
  std::optional<double> mixup, cutmix, smoothing, erasing, color_jitter;
  std::vector<double> mean, deviation;
  std::string cache = "auto";

  std::uint64_t seed = 0;
  std::string device = "auto", amp = "auto", resume = "auto";
  int threads = 0, workers = 0;
  std::int64_t log_every = 50, eval_every = 0, checkpoint_every = 0, keep = 2;
  bool half = false;
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
