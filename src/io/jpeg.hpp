// JPEG decoding.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "io/image.hpp"

namespace mhla::io {

// `name` begins every error message.
Image decode_jpeg(std::span<const std::byte> bytes, std::string_view name);

}  // namespace mhla::io
