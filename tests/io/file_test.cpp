// Files, JSON and PNG.
#include "io/file.hpp"

#include <gtest/gtest.h>
#include <png.h>

#include "io/json.hpp"
#include "io/png.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

std::string base64_of(std::string_view text) { return base64(std::as_bytes(std::span(text))); }

TEST(Base64, PadsAsTheStandardSays) {
  EXPECT_EQ(base64_of(""), "");
  EXPECT_EQ(base64_of("f"), "Zg==");
  EXPECT_EQ(base64_of("fo"), "Zm8=");
  EXPECT_EQ(base64_of("foo"), "Zm9v");
  EXPECT_EQ(base64_of("foobar"), "Zm9vYmFy");
}

TEST(ParseJson, RefusesDuplicatesDepthAndGarbageNamingTheSource) {
  EXPECT_EQ(parse_json(R"({"a": [1, 2]})", "here")["a"][1], 2);
  for (const char* bad : {"", "{", R"({"a":1,"a":2})", "[[[1]]]", "nan", "1 2"}) {
    try {
      parse_json(bad, "here", 2);
      ADD_FAILURE() << "accepted: " << bad;
    } catch (const Error& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("here: ")) << error.what();
    }
  }
}

TEST(ParseJson, EqualKeysOfDifferentObjectsAreFine) {
  EXPECT_NO_THROW(parse_json(R"({"a":{"x":1},"b":{"x":2},"x":[{"x":1},{"x":1}]})", "here"));
}

TEST(Png, DecodesToThePixelsGiven) {
  std::vector<std::uint8_t> rgb;
  for (int i = 0; i < 5 * 3 * 3; ++i) rgb.push_back(static_cast<std::uint8_t>(i * 5));
  const auto bytes = encode_png(rgb, 5, 3);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_NE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()), 0);
  EXPECT_EQ(image.width, 5U);
  EXPECT_EQ(image.height, 3U);
  image.format = PNG_FORMAT_RGB;
  std::vector<std::uint8_t> decoded(PNG_IMAGE_SIZE(image));
  ASSERT_NE(png_image_finish_read(&image, nullptr, decoded.data(), 0, nullptr), 0);
  EXPECT_EQ(decoded, rgb);
}

TEST(Png, SizesThatDoNotFitAreErrors) {
  const std::vector<std::uint8_t> rgb(12);
  EXPECT_THROW(encode_png(rgb, 2, 3), Error);
  EXPECT_THROW(encode_png(rgb, 0, 2), Error);
  EXPECT_THROW(encode_png(rgb, -2, -2), Error);
}

}  // namespace
}  // namespace mhla::io
