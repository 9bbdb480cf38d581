// Decoding: every kind of JPEG and PNG becomes 8-bit RGB, and a damaged file is an error that names it.
#include "io/image.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>

#include "io/file.hpp"
#include "io/png.hpp"
#include "mhla/types.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::io {
namespace {

using mhla::testing::bytes_of;
using mhla::testing::JpegKind;
using mhla::testing::make_jpeg;
using mhla::testing::make_png;
using mhla::testing::PngLayout;
using mhla::testing::test_picture;

int largest_difference(const Image& a, const Image& b) {
  int largest = a.height == b.height && a.width == b.width ? 0 : 256;
  for (std::size_t i = 0; largest < 256 && i < a.rgb.size(); ++i)
    largest = std::max(largest, std::abs(a.rgb[i] - b.rgb[i]));
  return largest;
}

TEST(Jpeg, PixelsComeBack) {
  const Image picture = test_picture(33, 47);
  EXPECT_LE(largest_difference(decode_image(make_jpeg(picture), "a.jpg"), picture), 6);
  EXPECT_LE(largest_difference(decode_image(make_jpeg(picture, JpegKind::progressive), "a.jpg"), picture), 6);
}

TEST(Jpeg, GreyHasThreeEqualChannels) {
  const Image picture = test_picture(20, 30);
  const Image decoded = decode_image(make_jpeg(picture, JpegKind::grey), "grey.jpg");
  ASSERT_EQ(decoded.rgb.size(), picture.rgb.size());
  for (std::size_t i = 0; i < decoded.rgb.size(); i += 3) {
    EXPECT_EQ(decoded.rgb[i], decoded.rgb[i + 1]);
    EXPECT_EQ(decoded.rgb[i], decoded.rgb[i + 2]);
    EXPECT_NEAR(decoded.rgb[i], picture.rgb[i], 4);
  }
}

TEST(Jpeg, InksBecomeLight) {
  const Image picture = test_picture(24, 24);
  EXPECT_LE(largest_difference(decode_image(make_jpeg(picture, JpegKind::cmyk), "cmyk.jpg"), picture), 6);
  EXPECT_LE(largest_difference(decode_image(make_jpeg(picture, JpegKind::ycck), "ycck.jpg"), picture), 8);
}

TEST(Jpeg, OnePixel) {
  const Image decoded = decode_image(make_jpeg({1, 1, {200, 200, 200}}), "one.jpg");
  EXPECT_EQ(decoded.height, 1);
  EXPECT_EQ(decoded.width, 1);
  EXPECT_NEAR(decoded.rgb[0], 200, 2);
}

TEST(Jpeg, EveryTruncationIsAnErrorWithTheName) {
  const std::vector<std::byte> whole = make_jpeg(test_picture(40, 40));
  for (std::size_t size = 3; size + 2 < whole.size(); size += 7)
    expect_error([&] { decode_image(std::span(whole).first(size), "data/cut.jpg"); }, {"data/cut.jpg: damaged JPEG: "});
}

TEST(Jpeg, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  std::vector<std::byte> bytes = make_jpeg(test_picture(16, 16));
  // The frame header: marker FFC0, two bytes of length, one of precision, then height and width.
  const std::vector<std::byte> marker = {std::byte{0xFF}, std::byte{0xC0}};
  const auto frame = std::ranges::search(bytes, marker).begin();
  ASSERT_NE(frame, bytes.end());
  std::fill(frame + 5, frame + 9, std::byte{0xFE});
  expect_error([&] { decode_image(bytes, "huge.jpg"); },
               {"huge.jpg: a JPEG of 65278 x 65278 pixels; at most 134217728"});
}

// The frame header again: a size within the limit, of which the bytes can hold nothing.
TEST(Jpeg, MorePixelsThanItsBytesCanHoldAreRefusedBeforeMemoryIsTaken) {
  std::vector<std::byte> bytes = make_jpeg(test_picture(16, 16));
  const std::vector<std::byte> marker = {std::byte{0xFF}, std::byte{0xC0}};
  const auto frame = std::ranges::search(bytes, marker).begin();
  ASSERT_NE(frame, bytes.end());
  std::fill(frame + 5, frame + 9, std::byte{0x20});
  expect_error([&] { decode_image(bytes, "empty.jpg"); }, {"empty.jpg: damaged JPEG: 8224 x 8224 pixels in "});
}

TEST(Png, MorePixelsThanItsBytesCanHoldAreRefusedBeforeMemoryIsTaken) {
  const std::vector<std::byte> whole = encode_png(std::vector<std::uint8_t>(3 * 512 * 512), 512, 512);
  expect_error([&] { decode_image(std::span(whole).first(100), "empty.png"); },
               {"empty.png: damaged PNG: 512 x 512 pixels in 100 bytes"});
}

TEST(Image, AFileLargerThanAnyImageIsNotRead) {
  const mhla::testing::TemporaryFolder folder;
  write_file(folder / "huge.jpg", std::string_view("\xFF\xD8\xFF"));
  std::filesystem::resize_file(folder / "huge.jpg", std::uintmax_t{1} << 40);
  expect_error([&] { load_image(folder / "huge.jpg"); },
               {"huge.jpg: a file of 1099511627776 bytes; at most 2147483648 are read"});
}

TEST(Png, EightBitRgbIsExact) {
  const Image picture = test_picture(19, 23);
  EXPECT_EQ(decode_image(encode_png(picture.rgb, 23, 19), "a.png"), picture);
  EXPECT_EQ(decode_image(make_png(19, 23, picture.rgb, {.interlaced = true}), "a.png"), picture);
}

TEST(Png, EveryLayoutBecomesRgb) {
  const auto decode = [](const std::vector<std::uint8_t>& samples, const PngLayout& layout) {
    return decode_image(make_png(1, 2, samples, layout), "a.png").rgb;
  };
  using Rgb = std::vector<std::uint8_t>;
  EXPECT_EQ(decode({7, 200}, {.color_type = 0}), (Rgb{7, 7, 7, 200, 200, 200}));
  EXPECT_EQ(decode({0b10000000}, {.bits = 1, .color_type = 0}), (Rgb{255, 255, 255, 0, 0, 0}));
  EXPECT_EQ(decode({7, 50, 200, 0}, {.color_type = 4}), (Rgb{7, 7, 7, 200, 200, 200}));
  EXPECT_EQ(decode({1, 2, 3, 50, 4, 5, 6, 255}, {.color_type = 6}), (Rgb{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(decode({1, 0}, {.color_type = 3, .palette = {9, 8, 7, 6, 5, 4}}), (Rgb{6, 5, 4, 9, 8, 7}));
  EXPECT_EQ(decode({0b01000000}, {.bits = 2, .color_type = 3, .palette = {9, 8, 7, 6, 5, 4}}), (Rgb{6, 5, 4, 9, 8, 7}));
}

TEST(Png, SixteenBitsAreScaled) {
  // v * 255 / 65535, rounded: 0x80FF -> 128.5 and 0x0180 -> 1.49.
  const std::vector<std::uint8_t> samples = {0xFF, 0xFF, 0x00, 0x00, 0x01, 0x80, 0x40, 0x40, 0x7F, 0x7F, 0x12, 0x34};
  const Image decoded = decode_image(make_png(1, 2, samples, {.bits = 16}), "deep.png");
  EXPECT_EQ(decoded.rgb, (std::vector<std::uint8_t>{255, 0, 1, 64, 127, 18}));
}

TEST(Png, EveryTruncationIsAnErrorWithTheName) {
  const Image picture = test_picture(30, 30);
  const std::vector<std::byte> whole = encode_png(picture.rgb, 30, 30);
  for (std::size_t size = 8; size < whole.size(); size += 5)
    expect_error([&] { decode_image(std::span(whole).first(size), "cut.png"); }, {"cut.png: damaged PNG: "});
}

TEST(Png, AbsurdSizesAreRefusedBeforeMemoryIsTaken) {
  std::vector<std::byte> bytes = make_png(1, 2, {0, 0}, {.color_type = 0});
  bytes[18] = std::byte{0xFF};  // width 0x0000FF02: the checksum of the header no longer fits
  expect_error([&] { decode_image(bytes, "huge.png"); }, {"huge.png: damaged PNG: IHDR: CRC error"});
  const std::vector<std::byte> wide =
      make_png(135, 1000000, std::vector<std::uint8_t>(135 * 125000), {.bits = 1, .color_type = 0});
  expect_error([&] { decode_image(wide, "wide.png"); }, {"wide.png: a PNG of 1000000 x 135 pixels; at most"});
}

TEST(Image, OtherFilesAreRefusedByWhatTheyAre) {
  expect_error([&] { decode_image({}, "x.jpg"); }, {"x.jpg: the file is empty"});
  expect_error([&] { decode_image(bytes_of("hello, world"), "x.jpg"); },
               {"x.jpg: neither JPEG nor PNG; it begins with \"hello, w\""});
  expect_error([&] { decode_image(bytes_of("GIF89a\1"), "x.jpg"); }, {"begins with \"GIF89a\\x01\""});
  expect_error([&] { load_image("/nowhere/x.jpg"); }, {"/nowhere/x.jpg: there is no such file"});
}

// Seeded damage to valid files: an image of the stated size, or an Error; never anything else.
TEST(Image, DamagedFilesNeverCrash) {
  const Image picture = test_picture(24, 17);
  std::mt19937_64 random(7);
  for (const std::vector<std::byte>& valid :
       {make_jpeg(picture), make_jpeg(picture, JpegKind::progressive), make_jpeg(picture, JpegKind::ycck),
        encode_png(picture.rgb, 17, 24), make_png(24, 17, picture.rgb, {.interlaced = true})}) {
    int refused = 0;
    constexpr int kTrials = 1500;
    for (int trial = 0; trial < kTrials; ++trial) try {
        const Image image = decode_image(mhla::testing::damaged(valid, random), "damaged");
        EXPECT_EQ(static_cast<std::int64_t>(image.rgb.size()), 3 * image.height * image.width);
        EXPECT_GT(image.height * image.width, 0);
      } catch (const Error&) {
        ++refused;
      }
    EXPECT_GT(refused, kTrials / 4);
  }
}

}  // namespace
}  // namespace mhla::io
