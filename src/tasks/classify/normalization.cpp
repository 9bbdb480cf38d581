// Measuring of pixels.
#include "tasks/classify/normalization.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tasks/usage_error.hpp"

namespace mhla::tasks {
namespace {

constexpr std::int64_t kMeasuredImages = 1024;

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

}  // namespace

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

}  // namespace mhla::tasks
