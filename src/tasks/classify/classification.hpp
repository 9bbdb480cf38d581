// How well a classifier does on a set of labelled images.
#pragma once

#include "data/image_loader.hpp"
#include "models/base/classifier.hpp"
#include "train/communicator.hpp"

namespace mhla::tasks {

struct Classification {
  at::Tensor confusion;     // i64 [classes, classes]: images of the row's class called the column's
  std::int64_t images = 0;  // judged
  std::int64_t top5 = 0;    // of them with the right class among the five most likely
  std::int64_t bad = 0;     // images that could not be read and are not counted
  double loss = 0.0;        // mean cross entropy

  double top1_accuracy() const;
  double top5_accuracy() const;
};

// One pass over the loader, shared out over the ranks; the result is the same on all of them. The model is in
// evaluation mode.
Classification classify_all(models::Classifier& model, data::ImageLoader& loader, at::Device device,
                            train::Communicator& communicator);

}  // namespace mhla::tasks
