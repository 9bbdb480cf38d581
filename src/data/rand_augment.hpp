// RandAugment (Cubuk et al. 2020) with the operations and magnitudes of timm: each of `operations` slots draws one of
// fifteen operations and does it with probability one half.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/random_stream.hpp"
#include "data/resize.hpp"
#include "io/image.hpp"

namespace mhla::data {

struct RandAugment {
  int operations = 2;
  double magnitude = 9.0;    // of 10
  double deviation = 0.5;    // of the magnitude, normally distributed
  bool increasing = true;    // a larger magnitude is always a stronger operation
  double probability = 0.5;  // of each slot
};

// "rand-m9-mstd0.5-inc1", in any order after "rand": m magnitude, mstd deviation, inc0|inc1, n operations, p
// probability.
RandAugment parse_rand_augment(std::string_view text);
std::string to_string(const RandAugment& options);

inline constexpr std::array<std::string_view, 15> kRandAugmentOperations = {
    "auto_contrast", "equalize",   "invert",    "rotate",  "posterize", "solarize",    "solarize_add", "saturation",
    "contrast",      "brightness", "sharpness", "shear_x", "shear_y",   "translate_x", "translate_y"};

// Pixels moved in from outside have the colour `fill`.
void apply_operation(io::Image& image, std::string_view operation, double magnitude, bool increasing,
                     Interpolation interpolation, std::array<std::uint8_t, 3> fill, RandomStream& random);

void rand_augment(io::Image& image, const RandAugment& options, std::array<std::uint8_t, 3> fill, RandomStream& random);

}  // namespace mhla::data
