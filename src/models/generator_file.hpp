// A trained generator in one safetensors file: weights, and in its metadata all that is needed to draw with them.
//
//   mhla.config     the GeneratorOptions
//   mhla.classes    names of the classes, a list
//   mhla.diffusion  {"schedule": "linear", "steps": 1000, "space": "pixels", "latent_scale": 0.18215}
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "models/base/generator.hpp"

namespace mhla::models {

struct GeneratorFacts {
  std::vector<std::string> classes;  // empty: not known
  std::string schedule = "linear";   // linear|cosine|flow
  std::int64_t steps = 1000;         // of the schedule
  std::string space = "pixels";      // pixels, from -1 to 1; or latents, of the Stable Diffusion autoencoder
  double latent_scale = 0.18215;     // latents are multiplied by it

  bool operator==(const GeneratorFacts&) const = default;
};

// `more` is added to the metadata: how it was trained, what it reached.
void save_generator(const Generator& generator, const std::filesystem::path& path, const GeneratorFacts& facts,
                    at::ScalarType dtype = at::kFloat, const io::Json& more = io::Json::object());

struct LoadedGenerator {
  std::shared_ptr<Generator> model;  // float32, in evaluation mode
  GeneratorFacts facts;
};
LoadedGenerator load_generator(const std::filesystem::path& path, const at::Device& device = at::kCPU);

}  // namespace mhla::models
