// From files to batches, and the resizing against torch's.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "data/image_loader.hpp"
#include "data/resize.hpp"
#include "io/file.hpp"
#include "support/image_files.hpp"
#include "support/temporary_folder.hpp"

namespace mhla::data {
namespace {

using mhla::testing::test_picture;

// What real folders hold: everything readable is read, everything else is named.
TEST(ImageFiles, OddOnesAreReadOrNamed) {
  const mhla::testing::TemporaryFolder folder;
  const std::vector<std::byte> whole = mhla::testing::make_jpeg(test_picture(40, 40));
  io::write_file(folder / "train/good/cmyk.jpg",
                 mhla::testing::make_jpeg(test_picture(40, 40), mhla::testing::JpegKind::cmyk));
  io::write_file(folder / "train/good/deep.png",
                 mhla::testing::make_png(1, 1, {0xFF, 0xFF, 0x80, 0x80, 0, 0}, {.bits = 16}));
  io::write_file(folder / "train/good/one.jpg", mhla::testing::make_jpeg({1, 1, {255, 0, 0}}));
  io::write_file(folder / "train/odd/cut.jpg", std::span(whole).first(whole.size() / 2));
  io::write_file(folder / "train/odd/text.jpg", std::string_view("not an image"));
  io::write_file(folder / "train/odd/thin.png",
                 mhla::testing::make_png(1, 600000, std::vector<std::uint8_t>(3 * 600000, 7), {}));
  io::write_file(folder / "train/odd/whole.jpg", whole);
  std::filesystem::create_directories(folder / "train/void");

  const auto source = open_image_source(folder.path(), "train");
  EXPECT_EQ(source->classes(), (std::vector<std::string>{"good", "odd"}));
  ASSERT_EQ(source->warnings().size(), 1U);
  EXPECT_EQ(source->warnings()[0], (folder / "train").string() + ": the class folder \"void\" is empty; left out");
  ImageLoaderOptions options{.batch = 12, .image_size = {16, 16}};
  std::vector<std::string> messages;
  options.report = [&](const std::string& message) { messages.push_back(message); };
  ImageLoader loader(source, options);
  loader.start(0);
  const auto batch = loader.next();
  ASSERT_TRUE(batch && !loader.next());
  EXPECT_EQ(batch->bad, 3);
  EXPECT_TRUE(at::equal(batch->labels, at::tensor({0, 0, 0, 1}, at::kLong)));
  EXPECT_TRUE(batch->images.isfinite().all().item<bool>());
  std::ranges::sort(messages);
  ASSERT_EQ(messages.size(), 3U);
  EXPECT_TRUE(messages[0].starts_with((folder / "train/odd/cut.jpg").string() + ": damaged JPEG: ")) << messages[0];
  EXPECT_EQ(messages[1],
            (folder / "train/odd/text.jpg").string() + ": neither JPEG nor PNG; it begins with \"not an i\"");
  EXPECT_NE(messages[2].find("odd/thin.png: 600000 x 1 pixels are too long and narrow"), std::string::npos)
      << messages[2];
}

TEST(ImageFiles, TheExampleDataIsBalancedAndWhole) {
  const auto source = open_image_source(MHLA_TEST_DATA "/../../examples/data/eurosat_test_1000.tar.gz", "test");
  EXPECT_TRUE(source->warnings().empty());
  EXPECT_EQ(source->classes().front(), "AnnualCrop");
  ImageLoaderOptions options{.batch = 100, .image_size = {64, 64}, .crop_fraction = 1.0};
  ImageLoader loader(source, options);
  ASSERT_EQ(loader.batches(), 10);
  loader.start(0);
  for (std::int64_t label = 0; label < 10; ++label) {
    const auto batch = loader.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->images.size(0), 100);
    EXPECT_TRUE(batch->labels.eq(label).all().item<bool>());
  }
}

// The same filters as torch's own antialiased interpolation.
TEST(Resize, AgreesWithTorch) {
  io::Image image = io::make_image(37, 53);
  RandomStream random{1};
  for (std::uint8_t& value : image.rgb) value = static_cast<std::uint8_t>(random.below(256));
  const Box box{3, 5, 30, 41};
  const at::Tensor planes = at::from_blob(image.rgb.data(), {37, 53, 3}, at::kByte).to(at::kFloat).permute({2, 0, 1});
  const at::Tensor part = planes.slice(1, 3, 33).slice(2, 5, 46).unsqueeze(0);
  for (const auto& [height, width] : {std::pair{30, 41}, {11, 13}, {64, 90}, {7, 100}, {1, 1}})
    for (const bool cubic : {false, true}) {
      const io::Image ours =
          resize(image, box, height, width, cubic ? Interpolation::bicubic : Interpolation::bilinear);
      const std::array<std::int64_t, 2> extents = {height, width};
      const at::IntArrayRef size = extents;
      const at::Tensor torchs = (cubic ? at::_upsample_bicubic2d_aa(part, size, false, std::nullopt, std::nullopt)
                                       : at::_upsample_bilinear2d_aa(part, size, false, std::nullopt, std::nullopt))
                                    .clamp(0.0, 255.0);
      const at::Tensor mine = at::from_blob(const_cast<std::uint8_t*>(ours.rgb.data()), {height, width, 3}, at::kByte)
                                  .to(at::kFloat)
                                  .permute({2, 0, 1});
      EXPECT_LE((mine - torchs[0]).abs().max().item<double>(), 0.502) << height << " x " << width << " " << cubic;
    }
}

}  // namespace
}  // namespace mhla::data
