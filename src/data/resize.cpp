// Separable resampling in float: along the columns, which makes one row of the result, then along that row.
#include "data/resize.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "mhla/types.hpp"

namespace mhla::data {
namespace {

// For every target pixel of one axis: the first source pixel it reads, and `taps` weights that sum to one.
struct Axis {
  std::int64_t taps = 0;
  std::vector<std::int64_t> first;
  std::vector<float> weights;
};

Axis make_axis(std::int64_t source, std::int64_t target, Interpolation interpolation) {
  const double scale = static_cast<double>(source) / static_cast<double>(target);
  const double widening = std::max(scale, 1.0);
  const double reach = (interpolation == Interpolation::bilinear ? 1.0 : 2.0) * widening;
  Axis axis;
  axis.taps = std::min(source, 2 * static_cast<std::int64_t>(std::ceil(reach)) + 1);
  axis.first.resize(target);
  axis.weights.assign(target * axis.taps, 0.0F);
  for (std::int64_t t = 0; t < target; ++t) {
    const double centre = (static_cast<double>(t) + 0.5) * scale;
    const double left = centre - reach + 0.5, right = centre + reach + 0.5;  // cut off towards zero, as Pillow does
    const auto begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(left));
    const auto end = std::min<std::int64_t>(source, static_cast<std::int64_t>(right));
    axis.first[t] = std::min(begin, source - axis.taps);
    float* const weights = &axis.weights[t * axis.taps];
    double sum = 0.0;
    for (std::int64_t s = begin; s < end; ++s)
      sum += filter_weight((static_cast<double>(s) + 0.5 - centre) / widening, interpolation);
    for (std::int64_t s = begin; s < end; ++s)
      weights[s - axis.first[t]] =
          static_cast<float>(filter_weight((static_cast<double>(s) + 0.5 - centre) / widening, interpolation) / sum);
  }
  return axis;
}

using Lanes = float __attribute__((vector_size(16)));

// `row` has three floats per pixel and one to spare: pixels are loaded as four lanes, of which three count.
void resample_row(const float* row, const Axis& axis, std::uint8_t* result) {
  const float* weight = axis.weights.data();
  for (const std::int64_t first : axis.first) {
    Lanes sum = {0.5F, 0.5F, 0.5F, 0.0F};  // rounds when cut to an integer
    for (const float* pixel = row + 3 * first; pixel < row + 3 * (first + axis.taps); pixel += 3) {
      Lanes lanes;
      std::memcpy(&lanes, pixel, sizeof lanes);
      sum += lanes * *weight++;
    }
    for (int c = 0; c < 3; ++c) *result++ = static_cast<std::uint8_t>(std::clamp(sum[c], 0.0F, 255.0F));
  }
}

}  // namespace

double filter_weight(double x, Interpolation interpolation) {
  x = std::abs(x);
  if (interpolation == Interpolation::bilinear) return std::max(0.0, 1.0 - x);
  constexpr double kSharpness = -0.5;  // Keys' cubic convolution
  if (x < 1.0) return ((kSharpness + 2.0) * x - (kSharpness + 3.0)) * x * x + 1.0;
  if (x < 2.0) return ((x - 5.0) * x + 8.0) * x * kSharpness - 4.0 * kSharpness;
  return 0.0;
}

io::Image resize(const io::Image& image, const Box& box, std::int64_t height, std::int64_t width,
                 Interpolation interpolation) {
  const Axis columns = make_axis(box.width, width, interpolation);
  const Axis rows = make_axis(box.height, height, interpolation);
  io::Image result = io::make_image(height, width);
  std::vector<float> row(3 * box.width + 1);
  for (std::int64_t y = 0; y < height; ++y) {
    std::ranges::fill(row, 0.0F);
    for (std::int64_t tap = 0; tap < rows.taps; ++tap) {
      const float weight = rows.weights[y * rows.taps + tap];
      const std::uint8_t* const source = &image.rgb[3 * ((box.top + rows.first[y] + tap) * image.width + box.left)];
      for (std::int64_t x = 0; x < 3 * box.width; ++x) row[x] += weight * static_cast<float>(source[x]);
    }
    resample_row(row.data(), columns, &result.rgb[3 * y * width]);
  }
  return result;
}

io::Image resize_to_cover(const io::Image& image, std::int64_t height, std::int64_t width,
                          Interpolation interpolation) {
  const bool by_height = height * image.width >= width * image.height;
  const std::int64_t new_height = by_height ? height : std::max(height, image.height * width / image.width);
  const std::int64_t new_width = by_height ? std::max(width, image.width * height / image.height) : width;
  if (new_height == image.height && new_width == image.width) return image;
  if (new_height > io::kMostPixels / new_width)
    throw Error(fmt::format("{} x {} pixels are too long and narrow: covering {} x {} would take {} x {}", image.width,
                            image.height, width, height, new_width, new_height));
  return resize(image, {0, 0, image.height, image.width}, new_height, new_width, interpolation);
}

}  // namespace mhla::data
