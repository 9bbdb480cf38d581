// PNG encoding with libpng.
#include "io/png.hpp"

#include <fmt/format.h>
#include <png.h>

#include "io/png_chunks.hpp"
#include "io/printable.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

constexpr std::size_t kHeaderEnd = kPngSignature + 25;  // the header chunk is the first and has 13 bytes of data

// Keyword, three zeros (its end; not compressed), language and translated keyword (none), text.
std::vector<std::byte> text_chunk(const std::string& keyword, const std::string& text) {
  if (keyword.empty() || keyword.size() > 79 || printable(keyword) != keyword || !is_utf8(text))
    throw Error(fmt::format("text \"{}\" cannot be stored in a PNG: a keyword has 1 to 79 letters, a text is UTF-8",
                            printable(keyword)));
  const std::string data = keyword + std::string(5, '\0') + text;
  std::vector<std::byte> chunk;
  add_chunk(chunk, "iTXt", std::as_bytes(std::span(data)));
  return chunk;
}

}  // namespace

std::vector<std::byte> encode_png(std::span<const std::uint8_t> rgb, std::int64_t width, std::int64_t height,
                                  const PngTexts& texts) {
  if (width < 1 || height < 1 || width > kLargestPngSide || height > kLargestPngSide)
    throw Error(fmt::format("image size is {} x {}; each side may be 1 to {}", width, height, kLargestPngSide));
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
  std::vector<std::byte> chunks;
  for (const auto& [keyword, text] : texts) {
    const std::vector<std::byte> chunk = text_chunk(keyword, text);
    chunks.insert(chunks.end(), chunk.begin(), chunk.end());
  }
  bytes.insert(bytes.begin() + kHeaderEnd, chunks.begin(), chunks.end());
  return bytes;
}

}  // namespace mhla::io
