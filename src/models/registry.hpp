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
  // A number of elements that all tensors of such a model have together, or somewhat less: known before the model takes
  // its memory. Null: not known.
  double (*least_elements)(const io::Json& config) = nullptr;
};
using Families = std::span<const Family>;

Families families();  // those of this program

// For Family::make. A `Made` has a `Config` that is read from JSON, and is made from it.
template <typename Made>
std::shared_ptr<Model> made(const io::Json& config) {
  return std::make_shared<Made>(config.get<typename Made::Config>());
}

// For Family::least_elements. A `Design` is made from the config that `Made` has, and cheap.
template <typename Made, typename Design>
double least_elements(const io::Json& config) {
  return Design(config.get<typename Made::Config>()).least_elements();
}

// Of all models for a task, family by family.
std::vector<std::string> model_names(std::string_view task, Families known = families());

// What the model that config["model"] names is for; empty where there is no such model.
std::string_view task_of(const io::Json& config, Families known = families());

// The model that config["model"] names. Initial values come from torch's generator (torch::manual_seed). Throws an
// Error that names the wrong option; where the model is unknown it lists those for `task`.
std::shared_ptr<Model> make_model(const io::Json& config, std::string_view task, Families known = families());

// The same for a file that holds all tensors of the model: refused at once where it has too few elements for that.
std::shared_ptr<Model> make_model_of(const io::SafeTensors& file, const io::Json& config, std::string_view task,
                                     Families known = families());

}  // namespace mhla::models
