// Random numbers, RandAugment, erasing, mixing of pairs, and the chains for training and evaluation.
#include "data/augmentation.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>

#include "data/geometry.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"

namespace mhla::data {
namespace {

using mhla::testing::test_picture;

TEST(RandomStream, DependsOnItsKeyAlone) {
  const auto first = [](std::initializer_list<std::uint64_t> key) { return RandomStream(key).bits(); };
  EXPECT_EQ(first({1, 2, 3}), first({1, 2, 3}));
  std::set<std::uint64_t> different;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::uint64_t epoch = 0; epoch < 10; ++epoch)
      for (std::uint64_t item = 0; item < 10; ++item) different.insert(first({seed, epoch, item}));
  EXPECT_EQ(different.size(), 1000U);
}

TEST(RandomStream, Distributions) {
  // First numbers of neighbouring streams, as the samples of an epoch use them.
  constexpr int kDraws = 200000;
  double mean = 0.0, normal_mean = 0.0, normal_square = 0.0, beta_mean = 0.0, beta_square = 0.0;
  std::array<int, 5> counts{};
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    RandomStream random{3, 0, i};
    mean += random.uniform() / kDraws;
    ++counts[random.below(5)];
    const double normal = random.normal(), beta = random.beta(0.2);
    normal_mean += normal / kDraws;
    normal_square += normal * normal / kDraws;
    beta_mean += beta / kDraws;
    beta_square += beta * beta / kDraws;
  }
  EXPECT_NEAR(mean, 0.5, 0.003);
  for (const int count : counts) EXPECT_NEAR(count, kDraws / 5, 700);
  EXPECT_NEAR(normal_mean, 0.0, 0.01);
  EXPECT_NEAR(normal_square, 1.0, 0.02);
  EXPECT_NEAR(beta_mean, 0.5, 0.004);
  EXPECT_NEAR(beta_square - beta_mean * beta_mean, 1.0 / (4.0 * (2.0 * 0.2 + 1.0)), 0.003);
}

// Values from 20 to 229, without any regularity an operation could leave alone.
io::Image noise(std::int64_t height, std::int64_t width) {
  io::Image image = io::make_image(height, width);
  RandomStream random{17};
  for (std::uint8_t& value : image.rgb) value = static_cast<std::uint8_t>(20 + random.below(210));
  return image;
}

TEST(RandAugment, Text) {
  const RandAugment options = parse_rand_augment("rand-m9-mstd0.5-inc1");
  EXPECT_EQ(options.magnitude, 9.0);
  EXPECT_EQ(options.deviation, 0.5);
  EXPECT_TRUE(options.increasing);
  EXPECT_EQ(options.operations, 2);
  EXPECT_EQ(options.probability, 0.5);
  EXPECT_EQ(to_string(options), "rand-m9-mstd0.5-inc1-n2-p0.5");
  EXPECT_EQ(parse_rand_augment("rand-m5-n3").operations, 3);
  expect_error([] { parse_rand_augment("auto-m9"); }, {"\"auto-m9\" must begin with \"rand\""});
  expect_error([] { parse_rand_augment("rand-m9-q3"); }, {"\"q3\" is unknown; there are m, mstd"});
  expect_error([] { parse_rand_augment("rand-mx"); }, {"\"x\" is not a number from 0 to 100"});
  expect_error([] { parse_rand_augment("rand-mnan"); }, {"\"nan\" is not a number from 0 to 100"});
  expect_error([] { parse_rand_augment("rand-n1.5"); }, {"\"1.5\" is not an integer from 0 to 100"});
  expect_error([] { parse_rand_augment("rand-p2"); }, {"\"2\" is not a number from 0 to 1"});
}

TEST(RandAugment, OperationsHaveTheirStrengths) {
  const auto apply = [](io::Image image, std::string_view operation, double magnitude, bool increasing) {
    RandomStream random{0};
    apply_operation(image, operation, magnitude, increasing, Interpolation::bilinear, {}, random);
    return image;
  };
  const io::Image pixel{1, 1, {200, 90, 10}};
  using Rgb = std::vector<std::uint8_t>;
  EXPECT_EQ(apply(pixel, "posterize", 5.0, true).rgb, (Rgb{192, 64, 0}));    // 2 of 4 bits
  EXPECT_EQ(apply(pixel, "posterize", 10.0, true).rgb, (Rgb{0, 0, 0}));      // no bits
  EXPECT_EQ(apply(pixel, "posterize", 10.0, false).rgb, (Rgb{192, 80, 0}));  // 4 bits
  EXPECT_EQ(apply(pixel, "solarize", 5.0, true).rgb, (Rgb{55, 90, 10}));     // from 128 up
  EXPECT_EQ(apply(pixel, "solarize", 10.0, false).rgb, (Rgb{200, 90, 10}));  // from 256 up
  EXPECT_EQ(apply(pixel, "solarize_add", 9.0, true).rgb, (Rgb{200, 189, 109}));
  // Brightness 1 +- 0.9 at full strength, but not below 0.1.
  const int brighter = apply(pixel, "brightness", 10.0, true).rgb[1];
  EXPECT_TRUE(brighter == 171 || brighter == 9) << brighter;
  EXPECT_EQ(apply(pixel, "brightness", 10.0, false).rgb[1], 171);
  // A shift of 45 % of ten pixels is 4.5.
  io::Image wide = io::make_image(1, 10);
  wide.rgb.assign(30, 100);
  int black = 0;
  for (const std::uint8_t value : apply(wide, "translate_x", 10.0, true).rgb) black += value == 0 ? 1 : 0;
  EXPECT_EQ(black, 3 * 4 + (apply(wide, "translate_x", 10.0, true).rgb[0] == 0 ? 0 : 3));
  expect_error([&] { apply(pixel, "swirl", 1.0, true); }, {"operation \"swirl\" is unknown"});
}

TEST(RandAugment, EveryOperationRunsOnEverySizeAndDoesSomething) {
  for (const std::string_view operation : kRandAugmentOperations) {
    for (const auto& [height, width] : {std::pair{1, 1}, {2, 1}, {64, 48}}) {
      const io::Image before = noise(height, width);
      io::Image image = before;
      RandomStream random{1};
      apply_operation(image, operation, 9.0, true, Interpolation::bicubic, {1, 2, 3}, random);
      EXPECT_EQ(image.height, before.height);
      EXPECT_EQ(image.rgb.size(), before.rgb.size());
      if (height == 64) {
        EXPECT_NE(image, before) << operation;
      }
    }
  }
}

TEST(RandAugment, HalfOfTheSlotsDoSomething) {
  const io::Image before = noise(32, 32);
  int unchanged = 0;
  constexpr int kDraws = 2000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    io::Image image = before;
    RandomStream random{2, i};
    rand_augment(image, RandAugment{}, {}, random);
    unchanged += image == before ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(unchanged) / kDraws, 0.25, 0.03);  // both slots idle
}

struct PlanesOf {
  explicit PlanesOf(std::int64_t height, std::int64_t width, float value = 0.0F)
      : values(3 * height * width, value), planes{height, width, values} {}
  std::vector<float> values;
  Planes planes;
};

TEST(Planes, NormalizationIsFused) {
  PlanesOf target(1, 2);
  const Normalization normalization{{0.5F, 0.25F, 0.0F}, {0.5F, 0.25F, 1.0F}};
  write_normalized({1, 2, {255, 0, 51, 0, 255, 255}}, normalization, target.planes);
  const std::vector<float> expected = {1.0F, -1.0F, -1.0F, 3.0F, 0.2F, 1.0F};
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(target.values[i], expected[i], 1e-6) << i;
}

TEST(Planes, ErasingFillsABoxWithNoise) {
  double area = 0.0, mean = 0.0, square = 0.0;
  std::int64_t erased = 0;
  constexpr int kDraws = 500;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    PlanesOf image(40, 40, 100.0F);
    RandomStream random{9, i};
    erase_random_box(image.planes, random);
    std::int64_t changed = 0;
    for (const float value : image.values)
      if (value != 100.0F) {
        ++changed;
        mean += value;
        square += value * value;
      }
    erased += changed;
    EXPECT_LE(changed, 3 * 1600 * 0.36);
    EXPECT_EQ(changed % 3, 0);
    area += static_cast<double>(changed) / (3.0 * 1600.0 * kDraws);
  }
  EXPECT_NEAR(area, (0.02 + 1.0 / 3.0) / 2.0, 0.02);
  EXPECT_NEAR(mean / static_cast<double>(erased), 0.0, 0.01);
  EXPECT_NEAR(square / static_cast<double>(erased), 1.0, 0.02);
}

TEST(Planes, PairsAreMixedBothWays) {
  PlanesOf a(1, 1, 1.0F), b(1, 1, 2.0F);
  mix_pair(a.planes, b.planes, 0.75F);
  EXPECT_FLOAT_EQ(a.values[0], 1.25F);
  EXPECT_FLOAT_EQ(b.values[0], 1.75F);
  PlanesOf c(2, 2, 1.0F), d(2, 2, 2.0F);
  swap_box(c.planes, d.planes, {1, 0, 1, 2});
  EXPECT_EQ(c.values, (std::vector<float>{1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2}));
  EXPECT_EQ(d.values, (std::vector<float>{2, 2, 1, 1, 2, 2, 1, 1, 2, 2, 1, 1}));
}

TEST(Augmentation, CutMixSharesFollowTheBox) {
  Augmentation augmentation{.mixup = 0.2, .cutmix = 1.0};
  int cuts = 0;
  constexpr int kDraws = 4000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    RandomStream random{4, i};
    const PairMixing mixing = draw_pair_mixing(augmentation, 32, 48, random);
    EXPECT_TRUE(mixing.share >= 0.0 && mixing.share <= 1.0);
    if (!mixing.box) continue;
    ++cuts;
    const Box& box = *mixing.box;
    EXPECT_TRUE(box.top >= 0 && box.left >= 0 && box.top + box.height <= 32 && box.left + box.width <= 48);
    EXPECT_DOUBLE_EQ(mixing.share, 1.0 - static_cast<double>(box.height * box.width) / (32.0 * 48.0));
  }
  EXPECT_NEAR(static_cast<double>(cuts) / kDraws, 0.5, 0.03);
  augmentation.cutmix = 0.0;
  RandomStream random{1};
  EXPECT_FALSE(draw_pair_mixing(augmentation, 32, 48, random).box);
  EXPECT_EQ(draw_pair_mixing({}, 32, 48, random).share, 1.0);
}

TEST(Augmentation, TargetsSumToOne) {
  std::vector<float> target(4);
  write_target(1, 3, 0.75, 0.2, target);
  const std::vector<float> expected = {0.05F, 0.65F, 0.05F, 0.25F};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(target[i], expected[i], 1e-6);
  write_target(2, 2, 0.3, 0.0, target);
  EXPECT_FLOAT_EQ(target[2], 1.0F);
}

TEST(Augmentation, DihedralGivesAllEightSymmetriesEquallyOften) {
  const io::Image picture = test_picture(6, 6);
  const Augmentation augmentation{.dihedral = true};
  std::map<std::vector<float>, int> seen;
  constexpr int kDraws = 4000;
  for (std::uint64_t i = 0; i < kDraws; ++i) {
    PlanesOf target(6, 6);
    RandomStream random{6, i};
    write_for_training(picture, augmentation, {}, random, target.planes);
    ++seen[target.values];
  }
  EXPECT_EQ(seen.size(), 8U);
  for (const auto& [image, count] : seen) EXPECT_NEAR(count, kDraws / 8, 90);
}

TEST(Augmentation, ReflectShiftsByUpToThePad) {
  const io::Image picture = test_picture(8, 8);
  const Augmentation augmentation{.crop = Crop::reflect, .pad = 2};
  std::set<std::vector<float>> seen;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    PlanesOf target(8, 8);
    RandomStream random{8, i};
    write_for_training(picture, augmentation, {}, random, target.planes);
    seen.insert(target.values);
  }
  std::set<std::vector<float>> expected;
  for (std::int64_t top = -2; top <= 2; ++top)
    for (std::int64_t left = -2; left <= 2; ++left) {
      PlanesOf target(8, 8);
      write_normalized(reflect_crop(picture, top, left, 8, 8), {}, target.planes);
      expected.insert(target.values);
    }
  EXPECT_EQ(seen, expected);
}

TEST(Augmentation, EvaluationTakesTheMiddle) {
  // 8 x 8 from 16 x 20 with 0.5: resized to 16 x 20 (as it is), then rows 4 to 11 and columns 6 to 13.
  const io::Image picture = test_picture(16, 20);
  PlanesOf target(8, 8), expected(8, 8);
  write_for_evaluation(picture, 0.5, {}, target.planes);
  write_normalized(crop(picture, {4, 6, 8, 8}), {}, expected.planes);
  EXPECT_EQ(target.values, expected.values);
  // A one-pixel image is that colour throughout.
  write_for_evaluation({1, 1, {10, 20, 30}}, 0.875, {{0, 0, 0}, {1, 1, 1}}, target.planes);
  for (std::size_t i = 0; i < 64; ++i) EXPECT_NEAR(target.values[i], 10.0 / 255.0, 1e-6);
}

TEST(Augmentation, EveryPresetTakesEverySizeOfImage) {
  for (const std::string_view name : {"none", "light", "deit"}) {
    const Augmentation augmentation = augmentation_preset(name);
    validate(augmentation);
    for (const auto& [height, width] : {std::pair{1, 1}, {1, 500}, {64, 64}, {333, 250}})
      for (std::uint64_t i = 0; i < 20; ++i) {
        PlanesOf target(32, 24, NAN);
        RandomStream random{i};
        write_for_training(test_picture(height, width), augmentation, {}, random, target.planes);
        for (const float value : target.values) ASSERT_TRUE(std::abs(value) < 6.0F) << name << " " << value;
      }
  }
}

TEST(Augmentation, BadFieldsAreNamed) {
  expect_error([] { augmentation_preset("heavy"); }, {"\"heavy\"; it may be none, light or deit"});
  const auto refused = [](const Augmentation& augmentation, std::string_view field) {
    expect_error([&] { validate(augmentation); }, {field});
  };
  refused({.scale = {0.5, 0.2}}, "scale is 0.5; it may be above 0 and up to 1");
  refused({.ratio = {0.0, 1.0}}, "ratio is 0");
  refused({.pad = -1}, "pad is -1");
  refused({.flip = 1.5}, "flip is 1.5; it may be 0 to 1");
  refused({.erasing = -0.5}, "erasing is -0.5");
  refused({.mixup = -1.0}, "mixup is -1; it may be 0 (not done) or 0.01 to 4");
  refused({.cutmix = 100.0}, "cutmix is 100");
  refused({.smoothing = 1.0}, "smoothing is 1");
}

}  // namespace
}  // namespace mhla::data
