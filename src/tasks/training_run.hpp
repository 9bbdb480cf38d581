// What training runs of all tasks share: where they run, how they begin, and the options of their trainer.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <ostream>
#include <string>

#include "io/json.hpp"
#include "models/base/model.hpp"
#include "models/base/weights.hpp"
#include "tasks/training_options.hpp"
#include "tasks/usage_error.hpp"
#include "train/communicator.hpp"
#include "train/trainer.hpp"

namespace mhla::tasks {

struct TrainingDevice {
  at::Device device = at::kCPU;
  std::string name{};  // for the report, and to know the device's peak
  bool bf16 = false;   // matrix products
};

// What the options leave open, once the recipe has decided.
struct Optimisation {
  std::int64_t steps = 1, warmup = 0, batch = 1;
  double lr = 1e-3, min_lr = 0.0, warmup_from = 0.0, weight_decay = 0.0, clip = 0.0, ema = 0.0;
};

// Throws a UsageError where options contradict each other.
train::TrainerOptions trainer_options(const TrainingOptions& options, const Optimisation& optimisation,
                                      const TrainingDevice& place, std::ostream& text);

// What a run that is resumed must agree on, whatever its task.
io::Json common_settings(const TrainingOptions& options, const Optimisation& optimisation, const TrainingDevice& place);

// What fits of the file of --init; a file of which nothing does is taken for a mistake.
void begin_with(const std::string& file, models::Model& model, std::ostream* text);

// The check of it, and its lines.
void say_what_fits(const std::string& file, const models::Model& model, const models::LoadReport& report,
                   std::ostream* text);

// make(), a model with the initial values of --seed, or with those of --init where they fit. Options no model can have
// are a UsageError.
template <typename Make>
auto initial_model(const TrainingOptions& options, Make&& make, std::ostream* text) {
  torch::manual_seed(options.seed);
  auto model = [&] {
    try {
      return make();
    } catch (const Error& error) {
      throw UsageError(std::string("model: ") + error.what());
    }
  }();
  if (!options.init.empty()) begin_with(options.init, *model, text);
  return model;
}

std::string parameter_count(const torch::nn::Module& model);  // "6,012,345 parameters"
std::string device_text(const TrainingDevice& place);

// As the user wrote it, to be kept with the weights.
std::string command_line();

// "mhla.results" of a file with weights.
io::Json stored_results(const std::filesystem::path& path);

}  // namespace mhla::tasks
