// Order, augmentation and mixing of an epoch's images.
#include "data/batch_maker.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>

#include "mhla/types.hpp"

namespace mhla::data {
namespace {

// What a stream of random numbers is for.
enum Purpose : std::uint64_t { kShuffle, kSample, kBatch };

void check_options(const ImageSource& source, const ImageLoaderOptions& options) {
  const auto check = [](bool good, std::string_view name, auto value, std::string_view allowed) {
    if (!good) throw Error(fmt::format("{} is {}; it may be {}", name, value, allowed));
  };
  check(options.image_size.size() == 2, "the number of image_size's extents", options.image_size.size(),
        "2: height and width");
  for (const std::int64_t side : options.image_size)
    check(side >= 1 && side <= 16384, "image_size", side, "1 to 16384");
  check(options.batch >= 1, "batch", options.batch, "1 or more");
  check(options.world >= 1, "world", options.world, "1 or more");
  check(options.rank >= 0 && options.rank < options.world, "rank", options.rank,
        fmt::format("0 to {}", options.world - 1));
  check(options.batch % options.world == 0, "batch", options.batch,
        fmt::format("a multiple of the {} processes", options.world));
  check(options.threads >= 0 && options.threads <= 1024, "threads", options.threads, "1 to 1024, or 0: one per core");
  check(options.prefetch >= 1, "prefetch", options.prefetch, "1 or more");
  check(options.crop_fraction > 0.0 && options.crop_fraction <= 1.0, "crop_fraction", options.crop_fraction,
        "above 0 and up to 1");
  for (const float std : options.normalization.std) check(std > 0.0F, "normalization std", std, "above 0");
  if (!options.train) return;
  validate(options.augmentation);
  check(!options.augmentation.mixes_pairs() || options.batch / options.world % 2 == 0, "batch", options.batch,
        "an even number per process, as mixup and cutmix work on pairs");
  check(options.batch <= source.size(), "batch", options.batch, fmt::format("at most the {} images", source.size()));
}

}  // namespace

BatchMaker::BatchMaker(std::shared_ptr<const ImageSource> source, ImageLoaderOptions options)
    : source_(std::move(source)), options_(std::move(options)), order_(source_->size()), is_bad_(source_->size()) {
  check_options(*source_, options_);
  if (!options_.report)
    options_.report = [](const std::string& message) { fmt::print(stderr, "warning: left out: {}\n", message); };
  if (options_.cache) cache_.resize(source_->size());
}

std::int64_t BatchMaker::batches() const {
  return options_.train ? source_->size() / options_.batch : (source_->size() + options_.batch - 1) / options_.batch;
}

std::vector<std::int64_t> BatchMaker::bad_images() const {
  const std::lock_guard lock(report_mutex_);
  return bad_images_;
}

void BatchMaker::begin_epoch(std::int64_t epoch) {
  if (epoch < 0) throw Error(fmt::format("epoch is {}; it may be 0 or more", epoch));
  epoch_ = static_cast<std::uint64_t>(epoch);
  std::iota(order_.begin(), order_.end(), 0);
  if (!options_.train) return;
  RandomStream{options_.seed, epoch_, kShuffle}.shuffle(order_);
}

std::unique_ptr<OpenBatch> BatchMaker::open(std::int64_t index) const {
  auto batch = std::make_unique<OpenBatch>();
  const std::int64_t global_first = index * options_.batch;
  const std::int64_t global_count = std::min(options_.batch, source_->size() - global_first);
  const auto share = [&](std::int64_t rank) { return global_count * rank / options_.world; };
  batch->first = global_first + share(options_.rank);
  batch->count = share(options_.rank + 1) - share(options_.rank);
  batch->unfinished = batch->count;
  const std::int64_t height = options_.image_size[0], width = options_.image_size[1];
  const auto memory = at::TensorOptions().pinned_memory(options_.pinned);
  batch->content.images = at::empty({batch->count, 3, height, width}, memory.dtype(at::kFloat));
  batch->content.labels = at::empty({batch->count}, memory.dtype(at::kLong));
  batch->good.assign(batch->count, 0);
  if (options_.train) {
    batch->content.targets = at::empty({batch->count, std::ssize(source_->classes())}, memory.dtype(at::kFloat));
    RandomStream random{options_.seed, epoch_, kBatch, static_cast<std::uint64_t>(index)};
    batch->mixing = draw_pair_mixing(options_.augmentation, height, width, random);
  }
  return batch;
}

Planes BatchMaker::planes_of(const OpenBatch& batch, std::int64_t i) const {
  const std::int64_t height = options_.image_size[0], width = options_.image_size[1], size = 3 * height * width;
  return {height, width, std::span(batch.content.images.data_ptr<float>() + i * size, static_cast<std::size_t>(size))};
}

// False where the image cannot be read.
bool BatchMaker::write_image(std::int64_t index, const Planes& target) {
  if (is_bad_[index] != 0) return false;
  const auto leave_out = [&](const std::string& why) {
    is_bad_[index] = 1;
    const std::lock_guard lock(report_mutex_);
    bad_images_.push_back(index);
    options_.report(why);
    return false;
  };
  io::Image loaded;
  const io::Image* image = &loaded;
  try {
    if (!options_.cache) {
      loaded = source_->load(index);
    } else {
      if (cache_[index].rgb.empty()) cache_[index] = source_->load(index);
      image = &cache_[index];
    }
  } catch (const Error& error) {
    return leave_out(error.what());
  }
  try {
    if (options_.train) {
      RandomStream random{options_.seed, epoch_, kSample, static_cast<std::uint64_t>(index)};
      write_for_training(*image, options_.augmentation, options_.normalization, random, target);
    } else {
      write_for_evaluation(*image, options_.crop_fraction, options_.normalization, target);
    }
  } catch (const Error& error) {
    return leave_out(source_->name(index) + ": " + error.what());
  }
  return true;
}

void BatchMaker::mix(const OpenBatch& batch, std::int64_t a, std::int64_t b) const {
  if (batch.mixing.box) {
    swap_box(planes_of(batch, a), planes_of(batch, b), *batch.mixing.box);
  } else {
    mix_pair(planes_of(batch, a), planes_of(batch, b), static_cast<float>(batch.mixing.share));
  }
}

void BatchMaker::fill(OpenBatch& batch, std::int64_t begin, std::int64_t end) {
  auto* const labels = batch.content.labels.data_ptr<std::int64_t>();
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t index = order_[batch.first + i];
    labels[i] = source_->label(index);
    batch.good[i] = write_image(index, planes_of(batch, i)) ? 1 : 0;
  }
  if (!options_.train) return;
  const bool mixed = batch.mixing.share < 1.0;
  const auto classes = static_cast<std::int64_t>(source_->classes().size());
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int64_t partner = i ^ 1;
    const bool pair = mixed && partner < end && batch.good[i] != 0 && batch.good[partner] != 0;
    if (pair && i < partner) mix(batch, i, partner);
    write_target(labels[i], labels[pair ? partner : i], batch.mixing.share, options_.augmentation.smoothing,
                 std::span(batch.content.targets.data_ptr<float>() + i * classes, static_cast<std::size_t>(classes)));
  }
}

ImageBatch BatchMaker::finish(const OpenBatch& batch) {
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < batch.count; ++i)
    if (batch.good[i] != 0) kept.push_back(i);
  if (std::ssize(kept) == batch.count) return batch.content;
  const at::Tensor rows = at::tensor(kept, at::kLong);
  const auto kept_of = [&](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.index_select(0, rows) : tensor;
  };
  return {kept_of(batch.content.images), kept_of(batch.content.targets), kept_of(batch.content.labels),
          batch.count - std::ssize(kept)};
}

}  // namespace mhla::data
