// Attention matrices as pictures.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace mhla::report {

// Dark blue through teal to yellow; equal steps of t in [0, 1] look equally large (a path of constant slope in OKLCh).
std::array<std::uint8_t, 3> colour(double t);

struct Matrix {
  std::span<const double> values;  // row by row
  std::int64_t rows = 0, columns = 0;
};

// PNG of a matrix whose rows sum to one. Colour is the weight relative to the uniform weight 1 / N on a logarithmic
// scale from kDarkest times to kBrightest times uniform, so that pictures of different matrices compare. Larger
// matrices are averaged down to at most `side` pixels, smaller ones enlarged by a whole factor.
inline constexpr double kDarkest = 0.1;
inline constexpr double kBrightest = 10.0;
std::vector<std::byte> heat_map_png(const Matrix& matrix, std::int64_t side = 512);

// The colour scale as an inline SVG with its labels.
std::string colour_scale_svg();

}  // namespace mhla::report
