// Flags that all training commands share.
#pragma once

#include <CLI/CLI.hpp>

#include "tasks/training_options.hpp"

namespace mhla::cli {

// Headings of their help.
inline constexpr const char* kModelHeading = "Model";
inline constexpr const char* kRecipeHeading = "Recipe";
inline constexpr const char* kImagesHeading = "Images";

void add_init_option(CLI::App& command, tasks::TrainingOptions& options);    // under Model
void add_batch_options(CLI::App& command, tasks::TrainingOptions& options);  // under Recipe
// Under Recipe. `min_lr`: its default, in words.
void add_optimisation_options(CLI::App& command, tasks::TrainingOptions& options, const char* min_lr = "0");
void add_loading_options(CLI::App& command, tasks::TrainingOptions& options);  // under Images
void add_run_options(CLI::App& command, tasks::TrainingOptions& options);      // under Run

}  // namespace mhla::cli
