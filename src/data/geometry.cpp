// Flips, crops and affine maps.
#include "data/geometry.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

namespace mhla::data {
namespace {

const std::uint8_t* pixel_at(const io::Image& image, std::int64_t y, std::int64_t x) {
  return &image.rgb[3 * (y * image.width + x)];
}

// -1 -> 1, -2 -> 2, count -> count - 2: back and forth between 0 and count - 1.
std::int64_t reflected(std::int64_t place, std::int64_t count) {
  if (count == 1) return 0;
  const std::int64_t period = 2 * (count - 1);
  place = ((place % period) + period) % period;
  return place < count ? place : period - place;
}

std::int64_t rounded(double value) { return std::llround(value); }

}  // namespace

io::Image flip_horizontal(const io::Image& image) {
  io::Image result = io::make_image(image.height, image.width);
  std::uint8_t* target = result.rgb.data();
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = image.width - 1; x >= 0; --x, target += 3) std::memcpy(target, pixel_at(image, y, x), 3);
  return result;
}

io::Image flip_vertical(const io::Image& image) {
  io::Image result = io::make_image(image.height, image.width);
  const std::int64_t row = 3 * image.width;
  for (std::int64_t y = 0; y < image.height; ++y)
    std::memcpy(&result.rgb[y * row], pixel_at(image, image.height - 1 - y, 0), row);
  return result;
}

io::Image transpose(const io::Image& image) {
  io::Image result = io::make_image(image.width, image.height);
  std::uint8_t* target = result.rgb.data();
  for (std::int64_t x = 0; x < image.width; ++x)
    for (std::int64_t y = 0; y < image.height; ++y, target += 3) std::memcpy(target, pixel_at(image, y, x), 3);
  return result;
}

io::Image crop(const io::Image& image, const Box& box) {
  io::Image result = io::make_image(box.height, box.width);
  const std::int64_t row = 3 * box.width;
  for (std::int64_t y = 0; y < box.height; ++y)
    std::memcpy(&result.rgb[y * row], pixel_at(image, box.top + y, box.left), row);
  return result;
}

io::Image centre_crop(const io::Image& image, std::int64_t height, std::int64_t width) {
  if (height == image.height && width == image.width) return image;
  return crop(image, {rounded(static_cast<double>(image.height - height) / 2.0),
                      rounded(static_cast<double>(image.width - width) / 2.0), height, width});
}

io::Image reflect_crop(const io::Image& image, std::int64_t top, std::int64_t left, std::int64_t height,
                       std::int64_t width) {
  io::Image result = io::make_image(height, width);
  std::vector<std::int64_t> columns(width);
  for (std::int64_t x = 0; x < width; ++x) columns[x] = 3 * reflected(left + x, image.width);
  std::uint8_t* target = result.rgb.data();
  for (std::int64_t y = 0; y < height; ++y) {
    const std::uint8_t* const row = pixel_at(image, reflected(top + y, image.height), 0);
    for (std::int64_t x = 0; x < width; ++x, target += 3) std::memcpy(target, row + columns[x], 3);
  }
  return result;
}

Box random_resized_box(RandomStream& random, std::int64_t height, std::int64_t width, std::array<double, 2> scale,
                       std::array<double, 2> ratio) {
  const auto area = static_cast<double>(height * width);
  for (int draw = 0; draw < 10; ++draw) {
    const double target = area * random.uniform(scale[0], scale[1]);
    const double proportion = std::exp(random.uniform(std::log(ratio[0]), std::log(ratio[1])));
    const std::int64_t w = rounded(std::sqrt(target * proportion)), h = rounded(std::sqrt(target / proportion));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const std::int64_t top = random.below(height - h + 1);
    return {top, random.below(width - w + 1), h, w};
  }
  const double proportion = std::clamp(static_cast<double>(width) / static_cast<double>(height), ratio[0], ratio[1]);
  const std::int64_t w = std::clamp<std::int64_t>(rounded(static_cast<double>(height) * proportion), 1, width);
  const std::int64_t h = std::clamp<std::int64_t>(rounded(static_cast<double>(width) / proportion), 1, height);
  return {(height - h) / 2, (width - w) / 2, h, w};
}

io::Image transform(const io::Image& image, const Affine& affine, Interpolation interpolation,
                    std::array<std::uint8_t, 3> fill) {
  const std::int64_t reach = interpolation == Interpolation::bilinear ? 1 : 2;
  io::Image result = io::make_image(image.height, image.width);
  std::uint8_t* target = result.rgb.data();
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < image.width; ++x, target += 3) {
      const double px = static_cast<double>(x) + 0.5, py = static_cast<double>(y) + 0.5;
      const double sx = affine.a * px + affine.b * py + affine.c, sy = affine.d * px + affine.e * py + affine.f;
      if (sx < 0.0 || sy < 0.0 || sx >= static_cast<double>(image.width) || sy >= static_cast<double>(image.height)) {
        std::ranges::copy(fill, target);
        continue;
      }
      const auto first_x = static_cast<std::int64_t>(std::floor(sx - 0.5)) - reach + 1;
      const auto first_y = static_cast<std::int64_t>(std::floor(sy - 0.5)) - reach + 1;
      std::array<double, 4> column_weights{};
      for (std::int64_t i = 0; i < 2 * reach; ++i)
        column_weights[i] = filter_weight(static_cast<double>(first_x + i) + 0.5 - sx, interpolation);
      std::array<double, 3> sum{};
      for (std::int64_t iy = first_y; iy < first_y + 2 * reach; ++iy) {
        const double row_weight = filter_weight(static_cast<double>(iy) + 0.5 - sy, interpolation);
        const std::uint8_t* const row = pixel_at(image, std::clamp<std::int64_t>(iy, 0, image.height - 1), 0);
        for (std::int64_t i = 0; i < 2 * reach; ++i) {
          const std::uint8_t* const source = row + 3 * std::clamp<std::int64_t>(first_x + i, 0, image.width - 1);
          for (std::size_t c = 0; c < 3; ++c) sum[c] += row_weight * column_weights[i] * source[c];
        }
      }
      for (std::size_t c = 0; c < 3; ++c) target[c] = static_cast<std::uint8_t>(std::clamp(sum[c] + 0.5, 0.0, 255.0));
    }
  return result;
}

Affine rotation(double degrees, std::int64_t height, std::int64_t width) {
  const double angle = degrees * std::numbers::pi / 180.0;
  const double cos = std::cos(angle), sin = std::sin(angle);
  const double x = static_cast<double>(width) / 2.0, y = static_cast<double>(height) / 2.0;
  // The result's pixel is turned back to where it came from; y points down.
  return {cos, -sin, x - cos * x + sin * y, sin, cos, y - sin * x - cos * y};
}

}  // namespace mhla::data
