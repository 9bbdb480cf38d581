// A training run of an image classifier from options to files.
#pragma once

#include "cli/train/classify_options.hpp"

namespace mhla::cli {

int run_train_classify(const TrainClassifyOptions& options);  // returns the exit code

}  // namespace mhla::cli
