// Augmentations that move pixels. All are pure functions of their arguments.
#pragma once

#include <array>
#include <cstdint>

#include "data/random_stream.hpp"
#include "data/resize.hpp"
#include "io/image.hpp"

namespace mhla::data {

io::Image flip_horizontal(const io::Image& image);  // left becomes right
io::Image flip_vertical(const io::Image& image);
io::Image transpose(const io::Image& image);  // rows become columns

io::Image crop(const io::Image& image, const Box& box);
io::Image centre_crop(const io::Image& image, std::int64_t height, std::int64_t width);

// A window of height x width whose first pixel is image pixel (top, left), which may lie outside: the image continues
// as its mirror image, without repeating the edge.
io::Image reflect_crop(const io::Image& image, std::int64_t top, std::int64_t left, std::int64_t height,
                       std::int64_t width);

// An area of `scale` of the image and a width / height of `ratio`, both drawn evenly (the ratio on a logarithmic
// scale); the largest box of an allowed ratio where ten draws do not fit.
Box random_resized_box(RandomStream& random, std::int64_t height, std::int64_t width, std::array<double, 2> scale,
                       std::array<double, 2> ratio);

// Result pixel (x, y) reads the image at (a x + b y + c, d x + e y + f), in coordinates where pixel i is [i, i + 1);
// `fill` where that is outside.
struct Affine {
  double a = 1.0, b = 0.0, c = 0.0, d = 0.0, e = 1.0, f = 0.0;
};
io::Image transform(const io::Image& image, const Affine& affine, Interpolation interpolation,
                    std::array<std::uint8_t, 3> fill);

// Counter-clockwise about the centre.
Affine rotation(double degrees, std::int64_t height, std::int64_t width);

}  // namespace mhla::data
