// What `mhla train generate` can be told.
#pragma once

#include <CLI/CLI.hpp>

#include "tasks/generate/recipe.hpp"

namespace mhla::cli {

void add_train_generate_options(CLI::App& command, tasks::TrainGenerateOptions& options);

}  // namespace mhla::cli
