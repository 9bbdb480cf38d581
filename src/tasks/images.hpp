// The images of a training run: splits and their loaders.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "data/image_loader.hpp"
#include "train/communicator.hpp"

namespace mhla::tasks {

struct TrainingImages {
  std::unique_ptr<data::ImageLoader> training, validation, test;  // the last two where there are such images
  double cached_bytes = 0.0;                                      // of training images kept in memory

  const std::vector<std::string>& classes() const { return training->source().classes(); }
  std::string describe() const;
  // Images of all splits found unreadable by any process, each counted once. Every rank calls it.
  std::int64_t bad_images(train::Communicator& communicator) const;
};

struct ImageRequest {
  std::string data, cache = "auto";       // --data and --cache
  std::int64_t accumulate = 1;            // batches of a step
  std::int64_t held_out_batch = 0;        // of the other splits; 0: the same
  data::ImageLoaderOptions loading = {};  // of the training split
  std::function<data::Normalization(const data::ImageSource& training)> normalization = nullptr;
};

// Notes on the images go to `text`, of the first process alone. Only the first process has test images.
TrainingImages open_training_images(const ImageRequest& request, at::Device device,
                                    const train::Communicator& communicator, std::ostream& text);

std::string augmentation_text(const data::Augmentation& augmentation);

}  // namespace mhla::tasks
