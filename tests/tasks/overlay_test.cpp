// Pictures of where a classifier looks.
#include "tasks/classify/overlay.hpp"

#include <gtest/gtest.h>

namespace mhla::tasks {
namespace {

// A weight of ten times uniform is as bright as it gets, a tenth as dark.
TEST(Overlay, ColoursAreWeightsRelativeToUniform) {
  Overlay overlay;
  overlay.image = at::zeros({64, 64, 3}, at::kByte);
  overlay.attention = at::zeros({4, 4}, at::kDouble);
  overlay.attention[0][0] = 1.0;
  const io::Image picture = io::decode_image(overlay_png(overlay), "overlay");
  const auto brightness = [&](std::int64_t y, std::int64_t x) {
    const auto at = static_cast<std::size_t>(3 * (y * picture.width + x));
    return picture.rgb[at] + picture.rgb[at + 1] + picture.rgb[at + 2];
  };
  EXPECT_EQ(brightness(10, 10), 0);
  EXPECT_GT(brightness(10, 396 + 10), 250);
  EXPECT_LT(brightness(300, 396 + 300), 150);
}

}  // namespace
}  // namespace mhla::tasks
