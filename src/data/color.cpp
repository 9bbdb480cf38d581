// Colour operations: look-up tables per channel, and blends with a version of the image that lacks a property.
#include "data/color.hpp"

#include <algorithm>
#include <array>

namespace mhla::data {
namespace {

using Table = std::array<std::uint8_t, 256>;
using Histogram = std::array<std::int64_t, 256>;

std::uint8_t to_byte(double value) { return static_cast<std::uint8_t>(std::clamp(value + 0.5, 0.0, 255.0)); }

template <typename Function>
Table make_table(const Function& value) {
  Table table;
  for (int i = 0; i < 256; ++i) table[i] = static_cast<std::uint8_t>(std::clamp<std::int64_t>(value(i), 0, 255));
  return table;
}

void look_up(io::Image& image, const Table& table) {
  for (std::uint8_t& value : image.rgb) value = table[value];
}

void look_up(io::Image& image, const Table& table, std::size_t channel) {
  for (std::size_t i = channel; i < image.rgb.size(); i += 3) image.rgb[i] = table[image.rgb[i]];
}

Histogram histogram(const io::Image& image, std::size_t channel) {
  Histogram counts{};
  for (std::size_t i = channel; i < image.rgb.size(); i += 3) ++counts[image.rgb[i]];
  return counts;
}

// ITU-R 601 luma.
double grey(const std::uint8_t* pixel) { return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]; }

Table blend_table(double base, double factor) {
  return make_table([&](int value) { return to_byte(base + factor * (value - base)); });
}

}  // namespace

void adjust_brightness(io::Image& image, double factor) { look_up(image, blend_table(0.0, factor)); }

void adjust_contrast(io::Image& image, double factor) {
  double sum = 0.0;
  for (std::size_t i = 0; i < image.rgb.size(); i += 3) sum += grey(&image.rgb[i]);
  const std::size_t pixels = image.rgb.size() / 3;
  const double mean = sum / static_cast<double>(pixels);
  look_up(image, blend_table(mean, factor));
}

void adjust_saturation(io::Image& image, double factor) {
  for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
    const double base = grey(&image.rgb[i]);
    for (std::size_t c = i; c < i + 3; ++c) image.rgb[c] = to_byte(base + factor * (image.rgb[c] - base));
  }
}

void adjust_sharpness(io::Image& image, double factor) {
  // Smooth: the mean of the 3 x 3 neighbourhood with the pixel itself counted five times. The rim stays.
  const io::Image original = image;
  const std::int64_t row = 3 * image.width;
  for (std::int64_t y = 1; y < image.height - 1; ++y)
    for (std::int64_t x = 3; x < row - 3; ++x) {
      const std::uint8_t* const centre = &original.rgb[y * row + x];
      int sum = 4 * *centre;
      for (const std::int64_t dy : {-row, std::int64_t{0}, row}) sum += centre[dy - 3] + centre[dy] + centre[dy + 3];
      const double smooth = sum / 13.0;
      image.rgb[y * row + x] = to_byte(smooth + factor * (*centre - smooth));
    }
}

void auto_contrast(io::Image& image) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const Histogram counts = histogram(image, channel);
    const auto present = [](std::int64_t count) { return count > 0; };
    const auto low = std::ranges::find_if(counts, present) - counts.begin();
    const auto high = counts.rend() - std::find_if(counts.rbegin(), counts.rend(), present) - 1;
    if (high > low) look_up(image, make_table([&](int value) { return (value - low) * 255 / (high - low); }), channel);
  }
}

void equalize(io::Image& image) {
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const Histogram counts = histogram(image, channel);
    const auto last = std::find_if(counts.rbegin(), counts.rend(), [](std::int64_t count) { return count > 0; });
    const std::int64_t pixels = image.height * image.width;
    const std::int64_t step = (pixels - *last) / 255;  // pixels per level
    if (step == 0) continue;
    std::int64_t before = step / 2;
    look_up(image, make_table([&](int value) {
              const std::int64_t level = before / step;
              before += counts[value];
              return level;
            }),
            channel);
  }
}

void invert(io::Image& image) {
  look_up(image, make_table([](int value) { return 255 - value; }));
}

void posterize(io::Image& image, int bits) {
  const int mask = 0xFF & ~(0xFF >> std::clamp(bits, 0, 8));
  look_up(image, make_table([&](int value) { return value & mask; }));
}

void solarize(io::Image& image, int threshold) {
  look_up(image, make_table([&](int value) { return value < threshold ? value : 255 - value; }));
}

void solarize_add(io::Image& image, int amount) {
  look_up(image, make_table([&](int value) { return value < 128 ? value + amount : value; }));
}

}  // namespace mhla::data
