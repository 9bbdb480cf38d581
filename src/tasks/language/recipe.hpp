// What a training run of a language model can be told, and the recipes that fill in the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/json.hpp"
#include "models/lm/lm_options.hpp"
#include "tasks/training_options.hpp"

namespace mhla::tasks {

struct TrainLanguageOptions : TrainingOptions {
  std::string recipe = "small";
  std::string tokenizer;  // empty: beside the splits

  // Members of models::LmOptions that were given. The rest comes from the model of --init, else from the recipe.
  io::Json model = io::Json::object();

  std::optional<std::int64_t> steps, context;
  std::optional<std::int64_t> batch_tokens;  // of a step, over all processes
  std::optional<std::int64_t> micro_batch;   // windows that a process computes at once
  bool separate_documents = false;

  std::int64_t val_tokens = 1 << 20;  // held-out tokens that a validation looks at, at most
  std::int64_t sample_tokens = 48;    // of a text that each validation writes
  std::string prompt;                 // how it begins

  TrainLanguageOptions() {
    eval_every = 250;
    checkpoint_every = 250;
  }
};

// Recipe and options put together. The vocabulary, and with it the model's, comes with the data.
struct LanguageRecipe {
  std::int64_t steps, context, warmup;
  std::int64_t windows;      // of a step, over all processes
  std::int64_t micro_batch;  // windows that a process computes at once; a divisor of its share
  double lr, min_lr, weight_decay, clip, ema;
  models::LmOptions model;

  std::int64_t batch_tokens() const { return windows * context; }
  std::int64_t accumulate(std::int64_t processes) const { return windows / (micro_batch * processes); }
};
// Throws a UsageError where options contradict each other.
LanguageRecipe resolve_recipe(const TrainLanguageOptions& options, std::int64_t processes, bool on_gpu);

}  // namespace mhla::tasks
