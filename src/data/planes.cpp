// Normalisation, erasing and the mixing of pairs.
#include "data/planes.hpp"

#include <algorithm>
#include <cmath>

namespace mhla::data {

void write_normalized(const io::Image& image, const Normalization& normalization, const Planes& target) {
  const std::int64_t pixels = target.height * target.width;
  for (std::size_t c = 0; c < 3; ++c) {
    const float scale = 1.0F / (255.0F * normalization.std[c]);
    const float shift = -normalization.mean[c] / normalization.std[c];
    float* const plane = target.values.data() + static_cast<std::int64_t>(c) * pixels;
    const std::uint8_t* const source = image.rgb.data() + c;
    for (std::int64_t i = 0; i < pixels; ++i) plane[i] = static_cast<float>(source[3 * i]) * scale + shift;
  }
}

void erase_random_box(const Planes& image, RandomStream& random) {
  constexpr double kLeastArea = 0.02, kMostArea = 1.0 / 3.0, kMostProportion = 10.0 / 3.0;
  for (int draw = 0; draw < 10; ++draw) {
    const double area = random.uniform(kLeastArea, kMostArea) * static_cast<double>(image.height * image.width);
    const double proportion = std::exp(random.uniform(-std::log(kMostProportion), std::log(kMostProportion)));
    const std::int64_t h = std::llround(std::sqrt(area * proportion)), w = std::llround(std::sqrt(area / proportion));
    if (h >= image.height || w >= image.width) continue;
    const std::int64_t top = random.below(image.height - h + 1), left = random.below(image.width - w + 1);
    for (std::int64_t c = 0; c < 3; ++c)
      for (std::int64_t y = top; y < top + h; ++y)
        for (std::int64_t x = left; x < left + w; ++x)
          image.values[(c * image.height + y) * image.width + x] = static_cast<float>(random.normal());
    return;
  }
}

void mix_pair(const Planes& a, const Planes& b, float share) {
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    const float first = a.values[i], second = b.values[i];
    a.values[i] = share * first + (1.0F - share) * second;
    b.values[i] = share * second + (1.0F - share) * first;
  }
}

void swap_box(const Planes& a, const Planes& b, const Box& box) {
  for (std::int64_t c = 0; c < 3; ++c)
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      const std::int64_t row = (c * a.height + y) * a.width + box.left;
      std::swap_ranges(a.values.begin() + row, a.values.begin() + row + box.width, b.values.begin() + row);
    }
}

Box cutmix_box(std::int64_t height, std::int64_t width, double share, RandomStream& random) {
  const double side = std::sqrt(1.0 - share);
  const auto h = static_cast<std::int64_t>(static_cast<double>(height) * side);
  const auto w = static_cast<std::int64_t>(static_cast<double>(width) * side);
  const std::int64_t y = random.below(height), x = random.below(width);
  const std::int64_t top = std::clamp<std::int64_t>(y - h / 2, 0, height);
  const std::int64_t left = std::clamp<std::int64_t>(x - w / 2, 0, width);
  return {top, left, std::clamp<std::int64_t>(y + h / 2, 0, height) - top,
          std::clamp<std::int64_t>(x + w / 2, 0, width) - left};
}

}  // namespace mhla::data
