// The last steps, on one image of a batch as the model reads it: three planes of normalised floats.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "data/random_stream.hpp"
#include "data/resize.hpp"
#include "io/image.hpp"

namespace mhla::data {

// Of every channel, with pixel values from 0 to 1.
struct Normalization {
  std::array<float, 3> mean = {0.485F, 0.456F, 0.406F};  // ImageNet's
  std::array<float, 3> std = {0.229F, 0.224F, 0.225F};
};

struct Planes {
  std::int64_t height, width;
  std::span<float> values;  // [3, height, width]
};

void write_normalized(const io::Image& image, const Normalization& normalization, const Planes& target);

// Random erasing: a box of 2 % to a third of the area becomes normally distributed noise.
void erase_random_box(const Planes& image, RandomStream& random);

// Blends a pair: a <- share a + (1 - share) b, and b likewise.
void mix_pair(const Planes& a, const Planes& b, float share);

// Swaps the contents of `box` between the two.
void swap_box(const Planes& a, const Planes& b, const Box& box);

// CutMix's box: it covers 1 - share of the image where it does not hang over the edge, where it is cut off.
Box cutmix_box(std::int64_t height, std::int64_t width, double share, RandomStream& random);

}  // namespace mhla::data
