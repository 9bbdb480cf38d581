// Mean and standard deviation of pixels that a classifier is trained with.
#pragma once

#include "data/image_source.hpp"
#include "data/planes.hpp"
#include "tasks/classify/recipe.hpp"

namespace mhla::tasks {

// Those of --mean and --std, or measured on the training images.
data::Normalization chosen_normalization(const TrainClassifyOptions& options, const data::ImageSource& training);

}  // namespace mhla::tasks
