// Augmentations that change colours, against cases done by hand.
#include "data/color.hpp"

#include <gtest/gtest.h>

namespace mhla::data {
namespace {

using Rgb = std::vector<std::uint8_t>;

template <typename Operation>
Rgb after(Rgb rgb, const Operation& operation) {
  io::Image image{1, static_cast<std::int64_t>(rgb.size() / 3), std::move(rgb)};
  operation(image);
  return image.rgb;
}

TEST(Color, LookUps) {
  EXPECT_EQ(after({0, 100, 255}, invert), (Rgb{255, 155, 0}));
  EXPECT_EQ(after({255, 100, 7}, [](io::Image& image) { posterize(image, 3); }), (Rgb{224, 96, 0}));
  EXPECT_EQ(after({255, 100, 7}, [](io::Image& image) { posterize(image, 0); }), (Rgb{0, 0, 0}));
  EXPECT_EQ(after({255, 100, 7}, [](io::Image& image) { posterize(image, 8); }), (Rgb{255, 100, 7}));
  EXPECT_EQ(after({127, 128, 200}, [](io::Image& image) { solarize(image, 128); }), (Rgb{127, 127, 55}));
  EXPECT_EQ(after({0, 127, 128}, [](io::Image& image) { solarize_add(image, 100); }), (Rgb{100, 227, 128}));
}

TEST(Color, FactorOneChangesNothing) {
  const Rgb colors = {1, 2, 3, 200, 100, 50, 255, 0, 128};
  for (const auto adjust : {adjust_brightness, adjust_contrast, adjust_saturation, adjust_sharpness})
    EXPECT_EQ(after(colors, [&](io::Image& image) { adjust(image, 1.0); }), colors);
}

TEST(Color, FactorsScaleTheProperty) {
  EXPECT_EQ(after({10, 100, 200}, [](io::Image& image) { adjust_brightness(image, 1.5); }), (Rgb{15, 150, 255}));
  EXPECT_EQ(after({10, 100, 200}, [](io::Image& image) { adjust_brightness(image, 0.0); }), (Rgb{0, 0, 0}));
  // Luma of (10, 100, 200) is 84.49; of (100, 100, 100) it is 100: the mean is 92.245.
  EXPECT_EQ(after({10, 100, 200, 100, 100, 100}, [](io::Image& image) { adjust_contrast(image, 0.5); }),
            (Rgb{51, 96, 146, 96, 96, 96}));
  EXPECT_EQ(after({10, 100, 200}, [](io::Image& image) { adjust_saturation(image, 0.0); }), (Rgb{84, 84, 84}));
  EXPECT_EQ(after({10, 100, 200}, [](io::Image& image) { adjust_saturation(image, 0.5); }), (Rgb{47, 92, 142}));
}

TEST(Color, SharpnessZeroSmoothsTheInsideAndKeepsTheRim) {
  io::Image image = io::make_image(3, 3);
  for (std::size_t c = 0; c < 3; ++c) image.rgb[3 * 4 + c] = 130;  // the middle
  io::Image smooth = image;
  adjust_sharpness(smooth, 0.0);
  EXPECT_EQ(smooth.rgb[3 * 4], 50);  // 5 / 13
  EXPECT_EQ(smooth.rgb[0], 0);
  adjust_sharpness(image, 2.0);
  EXPECT_EQ(image.rgb[3 * 4], 210);  // 130 + 80
}

TEST(Color, AutoContrastStretchesEachChannel) {
  EXPECT_EQ(after({100, 0, 7, 150, 255, 7, 200, 10, 7}, auto_contrast), (Rgb{0, 0, 7, 127, 255, 7, 255, 10, 7}));
}

TEST(Color, EqualizeSpreadsTheLevels) {
  // 1020 pixels of four values, equally often: step = (1020 - 255) / 255 = 3, so levels (1 + 255 k) / 3.
  Rgb rgb;
  for (int i = 0; i < 1020; ++i)
    for (int c = 0; c < 3; ++c) rgb.push_back(static_cast<std::uint8_t>(100 + i % 4));
  const Rgb result = after(rgb, equalize);
  EXPECT_EQ(result[0], 0);
  EXPECT_EQ(result[3], 85);
  EXPECT_EQ(result[6], 170);
  EXPECT_EQ(result[9], 255);
  EXPECT_EQ(after({5, 5, 5, 5, 5, 5}, equalize), (Rgb{5, 5, 5, 5, 5, 5}));  // nothing to spread
}

}  // namespace
}  // namespace mhla::data
