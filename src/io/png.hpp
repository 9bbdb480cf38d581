// RGB images as PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/image.hpp"

namespace mhla::io {

inline constexpr std::int64_t kLargestPngSide = 1 << 15;  // that is written

// Keywords and texts. They are written as UTF-8; in files of others they may be of any bytes.
using PngTexts = std::vector<std::pair<std::string, std::string>>;

// `rgb` holds height rows of width pixels, three bytes each.
std::vector<std::byte> encode_png(std::span<const std::uint8_t> rgb, std::int64_t width, std::int64_t height,
                                  const PngTexts& texts = {});

bool is_png(std::span<const std::byte> bytes);  // by its first bytes

// `name` begins every error message. Texts of the file are added to `texts`.
Image decode_png(std::span<const std::byte> bytes, std::string_view name, PngTexts* texts = nullptr);

}  // namespace mhla::io
