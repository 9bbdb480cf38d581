// Opening of splits.
#include "tasks/images.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "report/text.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr double kCachedBytes = 8e9;

// Of all images once decoded, judged by the first that can be read.
double decoded_bytes(const data::ImageSource& source) {
  for (std::int64_t i = 0; i < source.size(); ++i) try {
      return static_cast<double>(source.load(i).rgb.size()) * static_cast<double>(source.size());
    } catch (const Error&) {
      continue;
    }
  return 0.0;
}

}  // namespace

std::string augmentation_text(const data::Augmentation& a) {
  std::string text = a.crop == data::Crop::centre    ? "whole images"
                     : a.crop == data::Crop::reflect ? fmt::format("shifts of {} pixels", a.pad)
                                                     : fmt::format("crops of {:.2f} to {:.2f}", a.scale[0], a.scale[1]);
  if (a.dihedral) text += ", flips and turns";
  if (a.flip > 0.0) text += fmt::format(", flips {}", a.flip);
  if (a.rand_augment) text += ", " + data::to_string(*a.rand_augment);
  const auto add = [&](const char* name, double value) {
    if (value > 0.0) text += fmt::format(", {} {}", name, value);
  };
  add("colour jitter", a.rand_augment ? 0.0 : a.color_jitter);
  add("erasing", a.erasing);
  add("mixup", a.mixup);
  add("CutMix", a.cutmix);
  add("label smoothing", a.smoothing);
  return text;
}

std::string TrainingImages::describe() const {
  const auto count = [](const std::unique_ptr<data::ImageLoader>& loader) {
    return loader ? report::grouped(static_cast<double>(loader->source().size())) : std::string("no");
  };
  return fmt::format("{} for training, {} for validation, {} for testing; {} classes{}", count(training),
                     count(validation), count(test), classes().size(),
                     training->options().cache ? fmt::format("; kept in memory ({:.0f} MB)", cached_bytes / 1e6) : "");
}

std::int64_t TrainingImages::bad_images(train::Communicator& communicator) const {
  std::int64_t count = test ? std::ssize(test->bad_images()) : 0;
  for (const auto* loader : {training.get(), validation.get()}) {
    if (loader == nullptr) continue;
    const at::Tensor found = at::zeros({loader->source().size()}, at::kLong);
    for (const std::int64_t image : loader->bad_images()) found[image] = 1;
    communicator.all_reduce(found);
    count += found.count_nonzero().item<std::int64_t>();
  }
  return count;
}

TrainingImages open_training_images(const ImageRequest& request, at::Device device,
                                    const train::Communicator& communicator, std::ostream& text) {
  const auto source = data::open_image_source(request.data, "train");
  const auto splits = data::image_splits(request.data);
  data::ImageLoaderOptions loading = request.loading;
  if (loading.batch * request.accumulate > source->size())
    throw UsageError(fmt::format("--batch is {} and --accumulate {}; there are {} images to train on", loading.batch,
                                 request.accumulate, source->size()));
  if (communicator.leads())
    for (const std::string& warning : source->warnings()) text << "note: " << warning << '\n';
  TrainingImages images;
  loading.normalization = request.normalization(*source);
  loading.train = true;
  loading.rank = communicator.rank();
  loading.world = communicator.size();
  const double bytes = decoded_bytes(*source);
  loading.cache = request.cache == "on" || (request.cache == "auto" && bytes < kCachedBytes);
  if (loading.cache) images.cached_bytes = bytes;
  loading.pinned = device.is_cuda();
  images.training = std::make_unique<data::ImageLoader>(source, loading);
  loading.train = false;
  if (request.held_out_batch > 0) loading.batch = request.held_out_batch;
  const auto open = [&](const std::string& split) -> std::unique_ptr<data::ImageLoader> {
    if (std::ranges::find(splits, split) == splits.end()) return nullptr;
    const auto images_of_split = data::open_image_source(request.data, split, source->classes());
    if (communicator.leads())
      for (const std::string& warning : images_of_split->warnings()) text << "note: " << warning << '\n';
    return std::make_unique<data::ImageLoader>(images_of_split, loading);
  };
  images.validation = open("val");
  loading.rank = 0;  // one process judges the test images
  loading.world = 1;
  if (communicator.leads()) images.test = open("test");
  return images;
}

}  // namespace mhla::tasks
