// Animated PNG. Programs that know no animations show the still picture, which is not one of the frames.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/image.hpp"
#include "io/png.hpp"

namespace mhla::io {

struct AnimationFrame {
  Image image;  // of the size of the still picture
  std::chrono::milliseconds shown{100};
};

// Plays again and again.
std::vector<std::byte> encode_apng(const Image& still, std::span<const AnimationFrame> frames,
                                   const PngTexts& texts = {});

// Of a PNG file with an animation.
std::optional<std::int64_t> frames_of_png(std::span<const std::byte> png);

}  // namespace mhla::io
