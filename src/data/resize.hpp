// Resampling to another size, with the filter widened where the image shrinks (antialias), as PIL and torch do it.
#pragma once

#include <cstdint>

#include "io/image.hpp"

namespace mhla::data {

enum class Interpolation { bilinear, bicubic };

struct Box {
  std::int64_t top, left, height, width;
};

// Only the pixels of `box` are seen.
io::Image resize(const io::Image& image, const Box& box, std::int64_t height, std::int64_t width,
                 Interpolation interpolation);

// Keeps the proportions: the smallest size that covers height x width.
io::Image resize_to_cover(const io::Image& image, std::int64_t height, std::int64_t width, Interpolation interpolation);

// The filter at distance x, in pixels.
double filter_weight(double x, Interpolation interpolation);

}  // namespace mhla::data
