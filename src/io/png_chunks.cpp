// Chunks of PNG files.
#include "io/png_chunks.hpp"

#include <zlib.h>

namespace mhla::io {

void add_big_endian(std::vector<std::byte>& bytes, std::uint32_t value) {
  for (const unsigned shift : {24U, 16U, 8U, 0U}) bytes.push_back(static_cast<std::byte>(value >> shift));
}

void add_big_endian(std::vector<std::byte>& bytes, std::uint16_t value) {
  for (const unsigned shift : {8U, 0U}) bytes.push_back(static_cast<std::byte>(value >> shift));
}

std::uint32_t read_big_endian(std::span<const std::byte, 4> bytes) {
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8U | std::to_integer<std::uint32_t>(byte);
  return value;
}

void add_chunk(std::vector<std::byte>& png, std::string_view type, std::span<const std::byte> data) {
  add_big_endian(png, static_cast<std::uint32_t>(data.size()));
  const std::size_t begin = png.size();
  for (const char letter : type) png.push_back(static_cast<std::byte>(letter));
  png.insert(png.end(), data.begin(), data.end());
  const auto* const summed = reinterpret_cast<const Bytef*>(png.data() + begin);
  add_big_endian(png, static_cast<std::uint32_t>(::crc32_z(0, summed, png.size() - begin)));
}

std::vector<PngChunk> chunks_of_png(std::span<const std::byte> png) {
  constexpr std::size_t kLength = 4, kType = 4, kChecksum = 4;
  std::vector<PngChunk> chunks;
  for (std::size_t at = kPngSignature; at + kLength + kType + kChecksum <= png.size();) {
    const std::size_t size = read_big_endian(png.subspan(at).first<kLength>());
    if (size > png.size() - at - kLength - kType - kChecksum) break;
    const auto* const type = reinterpret_cast<const char*>(png.data() + at + kLength);
    chunks.push_back({{type, kType}, png.subspan(at + kLength + kType, size)});
    at += kLength + kType + size + kChecksum;
  }
  return chunks;
}

}  // namespace mhla::io
