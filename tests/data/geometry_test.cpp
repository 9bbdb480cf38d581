// Augmentations that move pixels, against cases done by hand.
#include "data/geometry.hpp"

#include <gtest/gtest.h>

#include "data/resize.hpp"

namespace mhla::data {
namespace {

// Grey values in rows of `width`.
io::Image grey_image(std::int64_t width, const std::vector<int>& values) {
  io::Image image = io::make_image(std::ssize(values) / width, width);
  for (std::size_t i = 0; i < values.size(); ++i)
    for (std::size_t c = 0; c < 3; ++c) image.rgb[3 * i + c] = static_cast<std::uint8_t>(values[i]);
  return image;
}

std::vector<int> grey_values(const io::Image& image) {
  std::vector<int> values;
  for (std::size_t i = 0; i < image.rgb.size(); i += 3) {
    EXPECT_EQ(image.rgb[i], image.rgb[i + 1]);
    EXPECT_EQ(image.rgb[i], image.rgb[i + 2]);
    values.push_back(image.rgb[i]);
  }
  return values;
}

using Values = std::vector<int>;
const io::Image kSix = grey_image(3, {1, 2, 3, 4, 5, 6});

TEST(Geometry, Flips) {
  EXPECT_EQ(grey_values(flip_horizontal(kSix)), (Values{3, 2, 1, 6, 5, 4}));
  EXPECT_EQ(grey_values(flip_vertical(kSix)), (Values{4, 5, 6, 1, 2, 3}));
  const io::Image turned = transpose(kSix);
  EXPECT_EQ(turned.width, 2);
  EXPECT_EQ(grey_values(turned), (Values{1, 4, 2, 5, 3, 6}));
}

TEST(Geometry, Crops) {
  EXPECT_EQ(grey_values(crop(kSix, {1, 1, 1, 2})), (Values{5, 6}));
  EXPECT_EQ(grey_values(centre_crop(grey_image(4, {0, 1, 2, 3}), 1, 2)), (Values{1, 2}));
}

TEST(Geometry, ReflectionDoesNotRepeatTheEdge) {
  const io::Image row = grey_image(4, {0, 1, 2, 3});
  EXPECT_EQ(grey_values(reflect_crop(row, 0, -2, 1, 8)), (Values{2, 1, 0, 1, 2, 3, 2, 1}));
  EXPECT_EQ(grey_values(reflect_crop(row, 0, -7, 1, 3)), (Values{1, 0, 1}));
  EXPECT_EQ(grey_values(reflect_crop(row, 5, 0, 1, 2)), (Values{0, 1}));  // one row reflects to itself
  EXPECT_EQ(grey_values(reflect_crop(kSix, -1, 1, 2, 1)), (Values{5, 2}));
}

TEST(Geometry, RandomBoxesHaveTheAskedForAreaAndProportions) {
  double mean_area = 0.0;
  constexpr int kDraws = 4000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    RandomStream random{5, i};
    const Box box = random_resized_box(random, 200, 300, {0.08, 0.5}, {0.75, 4.0 / 3.0});
    EXPECT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= 200 && box.left + box.width <= 300);
    const double area = static_cast<double>(box.height * box.width) / 60000.0;
    const double proportion = static_cast<double>(box.width) / static_cast<double>(box.height);
    EXPECT_TRUE(area > 0.075 && area < 0.51) << area;
    EXPECT_TRUE(proportion > 0.73 && proportion < 1.36) << proportion;
    mean_area += area / kDraws;
  }
  EXPECT_NEAR(mean_area, 0.29, 0.01);
}

TEST(Geometry, ABoxThatCannotFitIsTheLargestAllowed) {
  RandomStream random{1};
  const Box box = random_resized_box(random, 10, 1000, {1.0, 1.0}, {0.5, 2.0});
  EXPECT_EQ(box.height, 10);
  EXPECT_EQ(box.width, 20);
  EXPECT_EQ(box.left, 490);
  const Box one = random_resized_box(random, 1, 1, {0.08, 1.0}, {0.75, 4.0 / 3.0});
  EXPECT_EQ(one.height * one.width, 1);
}

TEST(Geometry, AffineMapsReadWhereTheySay) {
  const std::array<std::uint8_t, 3> fill = {9, 9, 9};
  for (const Interpolation interpolation : {Interpolation::bilinear, Interpolation::bicubic}) {
    EXPECT_EQ(transform(kSix, {}, interpolation, fill), kSix);
    EXPECT_EQ(grey_values(transform(kSix, {.c = 1.0}, interpolation, fill)), (Values{2, 3, 9, 5, 6, 9}));
    EXPECT_EQ(grey_values(transform(kSix, {.f = -1.0}, interpolation, fill)), (Values{9, 9, 9, 1, 2, 3}));
  }
  // Half a pixel to the side: the mean of two neighbours.
  EXPECT_EQ(grey_values(transform(grey_image(3, {0, 100, 200}), {.c = 0.5}, Interpolation::bilinear, fill)),
            (Values{50, 150, 9}));
  // Shear: the row y is read y * 1 pixels further right, from the middle of the row.
  EXPECT_EQ(
      grey_values(transform(grey_image(2, {10, 20, 30, 40}), {.b = 1.0, .c = -0.5}, Interpolation::bilinear, fill)),
      (Values{10, 20, 40, 9}));
}

TEST(Geometry, RotationIsCounterClockwise) {
  const io::Image square = grey_image(2, {1, 2, 3, 4});
  EXPECT_EQ(grey_values(transform(square, rotation(90.0, 2, 2), Interpolation::bilinear, {})), (Values{2, 4, 1, 3}));
  EXPECT_EQ(grey_values(transform(square, rotation(180.0, 2, 2), Interpolation::bilinear, {})), (Values{4, 3, 2, 1}));
}

TEST(Resize, HandComputedCases) {
  const auto resized = [](const io::Image& image, std::int64_t height, std::int64_t width, Interpolation kind) {
    return grey_values(resize(image, {0, 0, image.height, image.width}, height, width, kind));
  };
  for (const Interpolation kind : {Interpolation::bilinear, Interpolation::bicubic})
    EXPECT_EQ(resized(kSix, 2, 3, kind), (Values{1, 2, 3, 4, 5, 6}));
  // Doubled: weights 3/4 and 1/4, the edge repeated.
  EXPECT_EQ(resized(grey_image(2, {0, 100}), 1, 4, Interpolation::bilinear), (Values{0, 25, 75, 100}));
  // Halved: the triangle reaches two pixels: 1/8 3/8 3/8 1/8 inside, 3/7 3/7 1/7 at the edge.
  EXPECT_EQ(resized(grey_image(4, {0, 70, 140, 210}), 1, 2, Interpolation::bilinear), (Values{50, 160}));
  // From one pixel everything is that pixel.
  EXPECT_EQ(resized(grey_image(1, {77}), 2, 3, Interpolation::bicubic), (Values{77, 77, 77, 77, 77, 77}));
}

TEST(Resize, CoverKeepsTheProportions) {
  const auto size = [](std::int64_t h, std::int64_t w, std::int64_t to_h, std::int64_t to_w) {
    const io::Image image = resize_to_cover(io::make_image(h, w), to_h, to_w, Interpolation::bicubic);
    return std::pair(image.height, image.width);
  };
  EXPECT_EQ(size(375, 500, 256, 256), std::pair(std::int64_t{256}, std::int64_t{341}));
  EXPECT_EQ(size(500, 375, 256, 256), std::pair(std::int64_t{341}, std::int64_t{256}));
  EXPECT_EQ(size(100, 100, 50, 80), std::pair(std::int64_t{80}, std::int64_t{80}));
  EXPECT_EQ(size(1, 1000, 32, 32), std::pair(std::int64_t{32}, std::int64_t{32000}));
}

}  // namespace
}  // namespace mhla::data
