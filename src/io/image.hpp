// Photographs in: JPEG and PNG, told apart by their first bytes, as 8-bit RGB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

namespace mhla::io {

struct Image {
  std::int64_t height = 0, width = 0;
  std::vector<std::uint8_t> rgb;  // height rows of width pixels, three bytes each

  bool operator==(const Image&) const = default;
};

// An image of zeros.
Image make_image(std::int64_t height, std::int64_t width);

// Larger images are refused before memory is taken for them.
inline constexpr std::int64_t kMostPixels = std::int64_t{1} << 27;
inline constexpr std::size_t kMostFileBytes = std::size_t{1} << 31;  // 16 a pixel

// Grey, palette, CMYK and 16-bit images become 8-bit RGB, alpha is dropped, orientation marks are not followed. A
// damaged or truncated file is an Error that begins with `name`.
Image decode_image(std::span<const std::byte> bytes, std::string_view name);
Image load_image(const std::filesystem::path& path);

}  // namespace mhla::io
