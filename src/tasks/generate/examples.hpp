// What a generator learns from: pictures, or latents of them, with their classes.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/generator_file.hpp"
#include "tasks/generate/recipe.hpp"
#include "train/communicator.hpp"

namespace mhla::tasks {

struct Examples {
  at::Tensor x_0;          // f32 [B, C, H, W] in the network's range
  at::Tensor labels;       // i64 [B]
  std::int64_t first = 0;  // number of the first in the batch of all processes
};

// Batches as data::ImageLoader hands them out: those of an epoch are a function of (seed, epoch, batch).
class ExampleLoader {
 public:
  virtual ~ExampleLoader() = default;
  virtual std::int64_t size() const = 0;     // examples of an epoch
  virtual std::int64_t batch() const = 0;    // examples of a batch, over all processes
  virtual std::int64_t batches() const = 0;  // of an epoch
  virtual void start(std::int64_t epoch, std::int64_t first_batch) = 0;
  virtual std::optional<Examples> next() = 0;
};

// Of held-out examples, which are in the order of their classes: small batches at equal distances show all classes.
inline std::int64_t held_out_batch(const train::Communicator& communicator) {
  constexpr std::int64_t kAbout = 32;
  return (kAbout + communicator.size() - 1) / communicator.size() * communicator.size();
}

struct TrainingExamples {
  std::unique_ptr<ExampleLoader> training, validation;  // the latter where there are such examples
  models::GeneratorFacts facts;                         // classes and space
  std::int64_t channels = 3;
  std::vector<std::int64_t> size;  // height and width
  std::string description;
};

// Pictures as `mhla train classify` takes them, or a folder of latents (see latents.hpp).
TrainingExamples open_examples(const TrainGenerateOptions& options, const GenerateRecipe& recipe, at::Device device,
                               const train::Communicator& communicator, std::ostream& text);

}  // namespace mhla::tasks
