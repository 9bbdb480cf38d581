// Batches of images for training and evaluation, made ahead by a pool of threads.
//
// What batch b of epoch e holds depends on (seed, e, b) alone: not on threads, and not on how many processes there are.
// The images of one global batch are shared out among the processes in order, so that n processes see together what one
// would.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/augmentation.hpp"
#include "data/image_source.hpp"

namespace mhla::data {

struct ImageLoaderOptions {
  std::int64_t batch = 256;  // images of a global batch, over all processes
  std::vector<std::int64_t> image_size = {224, 224};
  bool train = false;  // shuffled and augmented, whole batches only; otherwise every image once, in order
  Augmentation augmentation = {};
  double crop_fraction = 0.875;  // of the resized image, kept by the centre crop of evaluation
  Normalization normalization = {};
  std::uint64_t seed = 0;
  std::int64_t rank = 0, world = 1;
  int threads = 0;            // 0: one per core
  std::int64_t prefetch = 4;  // batches made ahead
  bool cache = false;         // keep every image in memory once it is decoded
  bool pinned = false;        // memory a CUDA device can read directly
  // Told of each image that cannot be read, once, by any thread but never two at a time; by default it says so on the
  // standard error stream.
  std::function<void(const std::string& message)> report = nullptr;
};

struct ImageBatch {
  at::Tensor images;     // f32 [B, 3, H, W], normalised
  at::Tensor targets;    // f32 [B, classes], smoothed and mixed; undefined unless training
  at::Tensor labels;     // i64 [B]
  std::int64_t bad = 0;  // images of this batch that could not be read and are left out of it
};

class ImageLoader {
 public:
  ImageLoader(std::shared_ptr<const ImageSource> source, ImageLoaderOptions options);
  ~ImageLoader();

  // Of one epoch, and the same on every process.
  std::int64_t batches() const;
  const ImageLoaderOptions& options() const;
  const ImageSource& source() const;
  std::vector<std::int64_t> bad_images() const;  // indices of those found so far by this process

  // Leaves what was under way and begins `epoch` at `first_batch`.
  void start(std::int64_t epoch, std::int64_t first_batch = 0);
  // This process's part of the next batch; nothing at the end of the epoch.
  std::optional<ImageBatch> next();

 private:
  class Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace mhla::data
