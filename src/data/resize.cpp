// Separable resampling: along rows, then along columns, in float.
#include "data/resize.hpp"

#include <algorithm>
#include <cmath>

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
    const auto begin = std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - reach + 0.5));
    const auto end = std::min<std::int64_t>(source, static_cast<std::int64_t>(centre + reach + 0.5));
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

// One row of the source, resampled: `row` has 3 bytes per pixel, `result` 3 floats.
void resample_row(const std::uint8_t* row, const Axis& axis, float* result) {
  const float* weights = axis.weights.data();
  for (const std::int64_t first : axis.first) {
    const std::uint8_t* pixel = row + 3 * first;
    float red = 0.0F, green = 0.0F, blue = 0.0F;
    for (std::int64_t tap = 0; tap < axis.taps; ++tap, pixel += 3) {
      red += weights[tap] * static_cast<float>(pixel[0]);
      green += weights[tap] * static_cast<float>(pixel[1]);
      blue += weights[tap] * static_cast<float>(pixel[2]);
    }
    *result++ = red;
    *result++ = green;
    *result++ = blue;
    weights += axis.taps;
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
  const std::int64_t row_values = 3 * width;
  std::vector<float> between(box.height * row_values);
  for (std::int64_t y = 0; y < box.height; ++y)
    resample_row(&image.rgb[3 * ((box.top + y) * image.width + box.left)], columns, &between[y * row_values]);

  io::Image result = io::make_image(height, width);
  std::vector<float> sum(row_values);
  for (std::int64_t y = 0; y < height; ++y) {
    std::ranges::fill(sum, 0.5F);  // rounds when cut to an integer
    for (std::int64_t tap = 0; tap < rows.taps; ++tap) {
      const float weight = rows.weights[y * rows.taps + tap];
      const float* const source = &between[(rows.first[y] + tap) * row_values];
      for (std::int64_t x = 0; x < row_values; ++x) sum[x] += weight * source[x];
    }
    std::uint8_t* const target = &result.rgb[y * row_values];
    for (std::int64_t x = 0; x < row_values; ++x)
      target[x] = static_cast<std::uint8_t>(std::clamp(sum[x], 0.0F, 255.0F));
  }
  return result;
}

io::Image resize_to_cover(const io::Image& image, std::int64_t height, std::int64_t width,
                          Interpolation interpolation) {
  const bool by_height = height * image.width >= width * image.height;
  const std::int64_t new_height = by_height ? height : std::max(height, image.height * width / image.width);
  const std::int64_t new_width = by_height ? std::max(width, image.width * height / image.height) : width;
  if (new_height == image.height && new_width == image.width) return image;
  return resize(image, {0, 0, image.height, image.width}, new_height, new_width, interpolation);
}

}  // namespace mhla::data
