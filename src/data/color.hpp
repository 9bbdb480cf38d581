// Augmentations that change colours and keep every pixel in its place.
#pragma once

#include <cstdint>

#include "io/image.hpp"

namespace mhla::data {

// `factor` 1 leaves the image as it is, 0 takes the property away, more than 1 strengthens it.
void adjust_brightness(io::Image& image, double factor);
void adjust_contrast(io::Image& image, double factor);
void adjust_saturation(io::Image& image, double factor);
void adjust_sharpness(io::Image& image, double factor);

void auto_contrast(io::Image& image);  // stretches every channel to 0 .. 255
void equalize(io::Image& image);       // makes every channel's histogram as even as it can be
void invert(io::Image& image);
void posterize(io::Image& image, int bits);       // keeps the `bits` highest of 8
void solarize(io::Image& image, int threshold);   // inverts values of `threshold` and more
void solarize_add(io::Image& image, int amount);  // adds to values below 128

}  // namespace mhla::data
