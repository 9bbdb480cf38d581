// The images of a training run: splits, normalisation, loaders.
#pragma once

#include <memory>
#include <ostream>

#include "data/image_loader.hpp"
#include "models/classifier_file.hpp"
#include "tasks/classify/recipe.hpp"
#include "train/communicator.hpp"

namespace mhla::tasks {

struct ClassifyImages {
  std::unique_ptr<data::ImageLoader> training, validation, test;  // the last two where there are such images
  models::Preprocessing preprocessing;
  double cached_bytes = 0.0;  // of training images kept in memory

  const std::vector<std::string>& classes() const { return training->source().classes(); }
  std::string describe() const;
  // Images of all splits found unreadable by any process, each counted once. Every rank calls it.
  std::int64_t bad_images(train::Communicator& communicator) const;
};

// Notes on the images go to `text`, of the first process alone.
ClassifyImages open_classify_images(const TrainClassifyOptions& options, const ClassifyRecipe& recipe,
                                    at::Device device, const train::Communicator& communicator, std::ostream& text);

std::string augmentation_text(const data::Augmentation& augmentation);

}  // namespace mhla::tasks
