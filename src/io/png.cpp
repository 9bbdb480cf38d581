// PNG encoding with libpng.
#include "io/png.hpp"

#include <fmt/format.h>
#include <png.h>

#include "mhla/types.hpp"

namespace mhla::io {

std::vector<std::byte> encode_png(std::span<const std::uint8_t> rgb, std::int64_t width, std::int64_t height) {
  constexpr std::int64_t kLargest = 1 << 15;
  if (width < 1 || height < 1 || width > kLargest || height > kLargest)
    throw Error(fmt::format("image size is {} x {}; each side may be 1 to {}", width, height, kLargest));
  if (rgb.size() != static_cast<std::size_t>(width * height * 3))
    throw Error(
        fmt::format("rgb has {} bytes; an image of {} x {} has {}", rgb.size(), width, height, width * height * 3));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::vector<std::byte> bytes(size);
  if (png_image_write_to_memory(&image, bytes.data(), &size, 0, rgb.data(), 0, nullptr) == 0)
    throw Error(fmt::format("image cannot be encoded as PNG: {}", image.message));
  bytes.resize(size);
  return bytes;
}

}  // namespace mhla::io
