// The colour scale and heat maps.
#include "report/heat_map.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "io/png.hpp"

namespace mhla::report {
namespace {

double to_srgb(double linear) {
  const double x = std::clamp(linear, 0.0, 1.0);
  return x <= 0.0031308 ? 12.92 * x : 1.055 * std::pow(x, 1.0 / 2.4) - 0.055;
}

double cube(double x) { return x * x * x; }

// Mean weight relative to uniform of the part of the matrix under one cell of a picture of rows x columns cells; parts
// may overlap by a row or a column.
double mean_of_part(const Matrix& matrix, std::int64_t row, std::int64_t rows, std::int64_t column,
                    std::int64_t columns) {
  const std::int64_t top = row * matrix.rows / rows, bottom = ((row + 1) * matrix.rows + rows - 1) / rows;
  const std::int64_t left = column * matrix.columns / columns;
  const std::int64_t right = ((column + 1) * matrix.columns + columns - 1) / columns;
  double sum = 0.0;
  for (std::int64_t y = top; y < bottom; ++y)
    for (std::int64_t x = left; x < right; ++x)
      sum += matrix.values[static_cast<std::size_t>(y * matrix.columns + x)] * static_cast<double>(matrix.columns);
  return sum / static_cast<double>(bottom - top) / static_cast<double>(right - left);
}

}  // namespace

std::array<std::uint8_t, 3> colour(double t) {
  t = std::isfinite(t) ? std::clamp(t, 0.0, 1.0) : 0.0;
  const double lightness = 0.22 + 0.71 * t;
  const double chroma = 0.095 + 0.085 * t - 0.03 * std::sin(M_PI * t);
  const double hue = (290.0 - 182.0 * t) * M_PI / 180.0;
  const double a = chroma * std::cos(hue);
  const double b = chroma * std::sin(hue);
  const double l = cube(lightness + 0.3963377774 * a + 0.2158037573 * b);
  const double m = cube(lightness - 0.1055613458 * a - 0.0638541728 * b);
  const double s = cube(lightness - 0.0894841775 * a - 1.2914855480 * b);
  const std::array<double, 3> linear = {4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
                                        -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
                                        -0.0041960863 * l - 0.7034186147 * m + 1.7076147010 * s};
  std::array<std::uint8_t, 3> rgb{};
  for (std::size_t c = 0; c < 3; ++c) rgb[c] = static_cast<std::uint8_t>(std::lround(255.0 * to_srgb(linear[c])));
  return rgb;
}

std::vector<std::byte> heat_map_png(const Matrix& matrix, std::int64_t side) {
  const bool shrinks = matrix.rows > side;
  const std::int64_t rows = shrinks ? side : matrix.rows, columns = shrinks ? side : matrix.columns;
  const std::int64_t enlarge = shrinks ? 1 : std::max<std::int64_t>(1, side / std::max<std::int64_t>(matrix.rows, 1));
  const double decades = std::log10(kBrightest / kDarkest);
  std::vector<std::uint8_t> rgb(static_cast<std::size_t>(3 * rows * columns * enlarge * enlarge));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t column = 0; column < columns; ++column) {
      const double weight = mean_of_part(matrix, row, rows, column, columns);
      const auto pixel = colour(std::log10(weight / kDarkest) / decades);
      for (std::int64_t y = row * enlarge; y < (row + 1) * enlarge; ++y)
        for (std::int64_t x = column * enlarge; x < (column + 1) * enlarge; ++x)
          std::ranges::copy(pixel, rgb.begin() + 3 * (y * columns * enlarge + x));
    }
  return io::encode_png(rgb, columns * enlarge, rows * enlarge);
}

std::string colour_scale_svg() {
  constexpr int kSteps = 64;
  constexpr int kStepWidth = 5;
  std::string svg = fmt::format(
      "<svg class=\"chart\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} 40\" width=\"{0}\" height=\"40\" "
      "role=\"img\" "
      "aria-label=\"colour scale\">",
      kSteps * kStepWidth + 40);
  for (int i = 0; i < kSteps; ++i) {
    const auto rgb = colour(i / (kSteps - 1.0));
    svg += fmt::format("<rect x=\"{}\" y=\"2\" width=\"{}\" height=\"14\" fill=\"#{:02x}{:02x}{:02x}\"/>",
                       20 + i * kStepWidth, kStepWidth + 1, rgb[0], rgb[1], rgb[2]);
  }
  const auto label = [&](double share, const std::string& text) {
    return fmt::format(
        "<text class=\"label\" x=\"{:.0f}\" y=\"33\" text-anchor=\"middle\" font-size=\"12\" "
        "fill=\"#6b7280\">{}</text>",
        20 + share * kSteps * kStepWidth, text);
  };
  return svg + label(0, fmt::format("{}×", kDarkest)) + label(0.5, "uniform") +
         label(1, fmt::format("{}×", kBrightest)) + "</svg>";
}

}  // namespace mhla::report
