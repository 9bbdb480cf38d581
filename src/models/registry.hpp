// The model families there are: one line each in registry.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/base/model.hpp"

namespace mhla::models {

struct Family {
  std::string_view task;                // what its models are for: the folder of src/tasks
  std::vector<std::string> (*names)();  // of its models, as member "model" of a config has them
  std::shared_ptr<Model> (*make)(const io::Json& config);
};
using Families = std::span<const Family>;

Families families();  // those of this program

// For Family::make. A `Made` has a `Config` that is read from JSON, and is made from it.
template <typename Made>
std::shared_ptr<Model> made(const io::Json& config) {
  return std::make_shared<Made>(config.get<typename Made::Config>());
}

// Of all models for a task, family by family.
std::vector<std::string> model_names(std::string_view task, Families known = families());

// The model that config["model"] names. Initial values come from torch's generator (torch::manual_seed). Throws an
// Error that names the wrong option; where the model is unknown it lists those for `task`.
std::shared_ptr<Model> make_model(const io::Json& config, std::string_view task, Families known = families());

}  // namespace mhla::models
