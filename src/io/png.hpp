// RGB images as PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "io/image.hpp"

namespace mhla::io {

// `rgb` holds height rows of width pixels, three bytes each.
std::vector<std::byte> encode_png(std::span<const std::uint8_t> rgb, std::int64_t width, std::int64_t height);

// `name` begins every error message.
Image decode_png(std::span<const std::byte> bytes, std::string_view name);

}  // namespace mhla::io
