// Texts and animations in PNG files.
#include <gtest/gtest.h>
#include <zlib.h>

#include "io/apng.hpp"
#include "io/png.hpp"
#include "io/png_chunks.hpp"
#include "support/expect_error.hpp"
#include "support/image_files.hpp"

namespace mhla::io {
namespace {

using mhla::testing::test_picture;

std::vector<std::byte> encoded(const Image& image, const PngTexts& texts = {}) {
  return encode_png(image.rgb, image.width, image.height, texts);
}

TEST(PngText, WhatIsWrittenIsRead) {
  const Image picture = test_picture(9, 7);
  const PngTexts texts = {{"Software", "mhla"}, {"note", "Wälder, 森, \"quoted\"\nsecond line"}, {"empty", ""}};
  PngTexts read;
  EXPECT_EQ(decode_png(encoded(picture, texts), "a.png", &read), picture);
  EXPECT_EQ(read, texts);
}

// As other programs write them.
TEST(PngText, LatinAndCompressedTextsBehindThePixelsAreRead) {
  const auto add_text = [](std::vector<std::byte>& png, std::string_view type, const std::string& data) {
    add_chunk(png, type, std::as_bytes(std::span(data)));
  };
  std::vector<std::byte> png = encoded(test_picture(5, 5));
  png.resize(png.size() - 12);  // its end
  add_text(png, "tEXt", std::string("Comment\0plain", 13));
  std::string packed(100, '\0');
  uLongf size = packed.size();
  ASSERT_EQ(::compress(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>("squeezed"), 8),
            Z_OK);
  add_text(png, "zTXt", std::string("Title\0\0", 7) + packed.substr(0, size));
  add_chunk(png, "IEND", {});
  PngTexts read;
  decode_png(png, "a.png", &read);
  EXPECT_EQ(read, (PngTexts{{"Comment", "plain"}, {"Title", "squeezed"}}));
}

TEST(PngText, WhatCannotBeStoredIsRefused) {
  const Image picture = test_picture(2, 2);
  expect_error([&] { encoded(picture, {{"", "x"}}); }, {"a keyword has 1 to 79 letters"});
  expect_error([&] { encoded(picture, {{std::string(80, 'k'), "x"}}); }, {"a keyword has 1 to 79 letters"});
  expect_error([&] { encoded(picture, {{"key", "\xFF"}}); }, {"text \"key\" cannot be stored"});
}

// The frames of an animation, each as the PNG it would be alone.
std::vector<Image> frames_in(std::span<const std::byte> apng) {
  std::vector<Image> frames;
  std::vector<std::byte> header, png;
  std::uint32_t next = 0;
  const auto end_frame = [&] {
    if (png.empty()) return;
    add_chunk(png, "IEND", {});
    frames.push_back(decode_png(png, "frame"));
  };
  for (const PngChunk& chunk : chunks_of_png(apng)) {
    const auto* const summed = reinterpret_cast<const Bytef*>(chunk.data.data()) - 4;
    const auto stored = std::span(chunk.data.data() + chunk.data.size(), 4).first<4>();
    EXPECT_EQ(::crc32(0, summed, static_cast<uInt>(chunk.data.size() + 4)), read_big_endian(stored)) << chunk.type;
    if (chunk.type == "IHDR") {
      header.assign(apng.begin(), apng.begin() + kPngSignature);
      add_chunk(header, "IHDR", chunk.data);
    }
    if (chunk.type != "fcTL" && chunk.type != "fdAT") continue;
    EXPECT_EQ(read_big_endian(chunk.data.first<4>()), next++);
    if (chunk.type == "fcTL") {
      end_frame();
      png = header;
    } else {
      add_chunk(png, "IDAT", chunk.data.subspan(4));
    }
  }
  end_frame();
  return frames;
}

TEST(Apng, HoldsItsFramesAndOpensAsTheStillPicture) {
  const Image still = test_picture(40, 30, 9);
  std::vector<AnimationFrame> frames;
  for (int i = 0; i < 5; ++i) frames.push_back({test_picture(40, 30, i), std::chrono::milliseconds(70 + i)});
  const auto apng = encode_apng(still, frames, {{"note", "moving"}});
  PngTexts texts;
  EXPECT_EQ(decode_png(apng, "a.png", &texts), still);
  EXPECT_EQ(texts, (PngTexts{{"note", "moving"}}));
  EXPECT_EQ(frames_of_png(apng), 5);
  const std::vector<Image> decoded = frames_in(apng);
  ASSERT_EQ(decoded.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(decoded[i], frames[i].image) << i;
}

TEST(Apng, TellsHowLongEachFrameIsShown) {
  const Image picture = test_picture(4, 6);
  const auto apng = encode_apng(picture, std::vector<AnimationFrame>{{picture, std::chrono::milliseconds(300)}});
  std::vector<std::string> types;
  for (const PngChunk& chunk : chunks_of_png(apng)) {
    types.emplace_back(chunk.type);
    if (chunk.type != "fcTL") continue;
    ASSERT_EQ(chunk.data.size(), 26U);
    EXPECT_EQ(read_big_endian(chunk.data.subspan(4).first<4>()), 6U);  // width
    EXPECT_EQ(read_big_endian(chunk.data.subspan(8).first<4>()), 4U);  // height
    EXPECT_EQ(read_big_endian(chunk.data.subspan(20).first<4>()),
              300U << 16U | 1000U);  // 300 of 1000 parts of a second
  }
  EXPECT_EQ(types.front(), "IHDR");
  EXPECT_EQ(types[1], "acTL");  // before the still picture, or programs do not see it
  EXPECT_EQ(types.back(), "IEND");
}

TEST(Apng, FramesOfAnotherSizeAreRefused) {
  expect_error([] { encode_apng(test_picture(4, 6), std::vector<AnimationFrame>{{test_picture(6, 4)}}); },
               {"a frame has 4 x 6 pixels; the still picture has 6 x 4"});
  expect_error([] { encode_apng(test_picture(4, 6), {}); }, {"needs a frame"});
}

TEST(Apng, APictureThatStandsStillHasNoFrames) {
  EXPECT_EQ(frames_of_png(encoded(test_picture(4, 6))), std::nullopt);
  EXPECT_EQ(frames_of_png({}), std::nullopt);
}

}  // namespace
}  // namespace mhla::io
