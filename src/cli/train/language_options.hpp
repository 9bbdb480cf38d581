// What `mhla train language` can be told.
#pragma once

#include <CLI/CLI.hpp>

#include "tasks/language/recipe.hpp"

namespace mhla::cli {

void add_train_language_options(CLI::App& command, tasks::TrainLanguageOptions& options);

}  // namespace mhla::cli
