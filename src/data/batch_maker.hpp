// What the batches of an epoch hold: which images, how augmented, how mixed. The threads are ImageLoader's.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "data/image_loader.hpp"

namespace mhla::data {

// This process's part of a batch, while it is being filled.
struct OpenBatch {
  std::int64_t first = 0, count = 0;  // in the epoch's order
  PairMixing mixing;
  ImageBatch content;
  std::vector<std::uint8_t> good;  // 0 for an image that cannot be read

  std::int64_t claimed = 0, unfinished = 0;  // images that have a thread, images that are not done
};

class BatchMaker {
 public:
  BatchMaker(std::shared_ptr<const ImageSource> source, ImageLoaderOptions options);

  const ImageSource& source() const { return *source_; }
  const ImageLoaderOptions& options() const { return options_; }
  std::int64_t batches() const;
  std::vector<std::int64_t> bad_images() const;

  void begin_epoch(std::int64_t epoch);
  std::unique_ptr<OpenBatch> open(std::int64_t batch) const;
  // Images begin to end - 1, where begin is even. Several threads may fill different parts of one epoch.
  void fill(OpenBatch& batch, std::int64_t begin, std::int64_t end);
  // Without its bad images.
  static ImageBatch finish(const OpenBatch& batch);

 private:
  Planes planes_of(const OpenBatch& batch, std::int64_t i) const;
  bool write_image(std::int64_t index, const Planes& target);
  void mix(const OpenBatch& batch, std::int64_t a, std::int64_t b) const;

  const std::shared_ptr<const ImageSource> source_;
  ImageLoaderOptions options_;
  std::uint64_t epoch_ = 0;
  std::vector<std::int64_t> order_;

  // One element per image, touched by the one thread that has the image in this epoch.
  std::vector<io::Image> cache_;
  std::vector<std::uint8_t> is_bad_;

  mutable std::mutex report_mutex_;
  std::vector<std::int64_t> bad_images_;
};

}  // namespace mhla::data
