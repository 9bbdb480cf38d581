// Opening of splits and measuring of pixels.
#include "tasks/classify/images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "report/text.hpp"
#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kMeasuredImages = 1024;
constexpr double kCachedBytes = 8e9;

// Over images at equal distances in the list; those that cannot be read are left to the loader to report.
data::Normalization measured_normalization(const data::ImageSource& source) {
  std::array<double, 3> sum{}, square{};
  double pixels = 0.0;
  const std::int64_t count = std::min(source.size(), kMeasuredImages);
  for (std::int64_t i = 0; i < count; ++i) {
    io::Image image;
    try {
      image = source.load(i * source.size() / count);
    } catch (const Error&) {
      continue;
    }
    for (std::size_t p = 0; p < image.rgb.size(); ++p) {
      const double value = image.rgb[p] / 255.0;
      sum[p % 3] += value;
      square[p % 3] += value * value;
    }
    const std::size_t of_image = image.rgb.size() / 3;
    pixels += static_cast<double>(of_image);
  }
  data::Normalization result;
  if (pixels == 0.0) throw Error("none of the training images looked at can be read");
  for (std::size_t c = 0; c < 3; ++c) {
    const double mean = sum[c] / pixels;
    result.mean[c] = static_cast<float>(mean);
    result.std[c] = static_cast<float>(std::sqrt(std::max(1e-4, square[c] / pixels - mean * mean)));
  }
  return result;
}

data::Normalization chosen_normalization(const TrainClassifyOptions& options, const data::ImageSource& source) {
  if (options.mean.empty()) return measured_normalization(source);
  data::Normalization result;
  for (std::size_t c = 0; c < 3; ++c) {
    result.mean[c] = static_cast<float>(options.mean[c]);
    result.std[c] = static_cast<float>(options.deviation[c]);
    if (!(options.deviation[c] > 0.0))
      throw UsageError(fmt::format("--std has {}; it must be positive", options.deviation[c]));
  }
  return result;
}

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

std::string ClassifyImages::describe() const {
  const auto count = [](const std::unique_ptr<data::ImageLoader>& loader) {
    return loader ? report::grouped(static_cast<double>(loader->source().size())) : std::string("no");
  };
  return fmt::format("{} for training, {} for validation, {} for testing; {} classes{}", count(training),
                     count(validation), count(test), classes().size(),
                     training->options().cache ? fmt::format("; kept in memory ({:.0f} MB)", cached_bytes / 1e6) : "");
}

std::int64_t ClassifyImages::bad_images(train::Communicator& communicator) const {
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

ClassifyImages open_classify_images(const TrainClassifyOptions& options, const ClassifyRecipe& recipe,
                                    at::Device device, const train::Communicator& communicator, std::ostream& text) {
  const auto source = data::open_image_source(options.data, "train");
  const auto splits = data::image_splits(options.data);
  if (recipe.batch * options.accumulate > source->size())
    throw UsageError(fmt::format("--batch is {} and --accumulate {}; there are {} images to train on", recipe.batch,
                                 options.accumulate, source->size()));
  if (communicator.leads())
    for (const std::string& warning : source->warnings()) text << "note: " << warning << '\n';
  ClassifyImages images;
  data::ImageLoaderOptions loading;
  loading.normalization = chosen_normalization(options, *source);
  loading.batch = recipe.batch;
  loading.image_size = recipe.model.image_size;
  loading.train = true;
  loading.augmentation = recipe.augmentation;
  loading.seed = options.seed;
  loading.rank = communicator.rank();
  loading.world = communicator.size();
  loading.threads = options.workers;
  const double bytes = decoded_bytes(*source);
  loading.cache = options.cache == "on" || (options.cache == "auto" && bytes < kCachedBytes);
  if (loading.cache) images.cached_bytes = bytes;
  loading.pinned = device.is_cuda();
  // Small images are all there is to see of the scene; larger ones are cut as is usual.
  loading.crop_fraction = options.recipe == "small" ? 1.0 : 0.875;
  images.preprocessing = {loading.normalization.mean, loading.normalization.std, loading.crop_fraction};
  images.training = std::make_unique<data::ImageLoader>(source, loading);
  loading.train = false;
  const auto open = [&](const std::string& split) -> std::unique_ptr<data::ImageLoader> {
    if (std::ranges::find(splits, split) == splits.end()) return nullptr;
    const auto images_of_split = data::open_image_source(options.data, split, source->classes());
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
