// What `mhla train classify` can be told.
#pragma once

#include <CLI/CLI.hpp>

#include "tasks/classify/recipe.hpp"

namespace mhla::cli {

void add_train_classify_options(CLI::App& command, tasks::TrainClassifyOptions& options);

}  // namespace mhla::cli
