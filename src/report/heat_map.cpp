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

std::vector<std::byte> heat_map_png(const torch::Tensor& matrix, std::int64_t side) {
  torch::Tensor weights = matrix.to(torch::kFloat64) * static_cast<double>(matrix.size(1));
  std::int64_t enlarge = 1;
  if (matrix.size(0) > side)
    weights = torch::adaptive_avg_pool2d(weights.unsqueeze(0), {side, side}).squeeze(0);
  else
    enlarge = std::max<std::int64_t>(1, side / std::max<std::int64_t>(matrix.size(0), 1));
  const double decades = std::log10(kBrightest / kDarkest);
  const torch::Tensor level = ((weights / kDarkest).log10() / decades).contiguous();
  const auto values = level.accessor<double, 2>();
  const std::int64_t height = values.size(0) * enlarge;
  const std::int64_t width = values.size(1) * enlarge;
  std::vector<std::uint8_t> rgb;
  rgb.reserve(static_cast<std::size_t>(width * height * 3));
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const auto pixel = colour(values[y / enlarge][x / enlarge]);
      rgb.insert(rgb.end(), pixel.begin(), pixel.end());
    }
  return io::encode_png(rgb, width, height);
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
