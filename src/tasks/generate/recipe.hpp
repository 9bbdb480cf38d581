// What a training run of an image generator can be told, and the recipes that fill in the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/base/generator.hpp"
#include "models/generator_file.hpp"
#include "tasks/training_options.hpp"

namespace mhla::tasks {

struct TrainGenerateOptions : TrainingOptions {
  std::string recipe = "small";

  models::GeneratorOptions model;  // with the options below
  std::string model_name;
  std::vector<std::int64_t> image_size;
  std::optional<bool> learned_variance;
  std::optional<std::int64_t> steps;

  std::string noise = "linear";  // the schedule of the noise
  double drop_class = 0.1;       // how often a picture is trained without its class
  std::string augment = "flip";  // none|flip|turns

  std::int64_t val_images = 2048;  // held-out pictures that an evaluation looks at, at most
  std::int64_t samples = 4;        // pictures of every class that an evaluation draws, of the first ten classes
  std::int64_t sample_steps = 50;
  double cfg_scale = 1.5;

  TrainGenerateOptions() {
    schedule = "constant";
    eval_every = 1000;
    checkpoint_every = 1000;
  }
};

// Recipe and options put together. What depends on the data is not in it yet: channels, classes, the size of latents.
struct GenerateRecipe {
  std::int64_t steps, batch, warmup;
  double lr, weight_decay, clip, ema;
  models::GeneratorOptions model;
};
GenerateRecipe resolve_recipe(const TrainGenerateOptions& options);

}  // namespace mhla::tasks
