// Chunks, of which PNG files consist: a length, four letters, data, and the checksum of letters and data. Numbers are
// big-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mhla::io {

inline constexpr std::size_t kPngSignature = 8;  // bytes before the first chunk

struct PngChunk {
  std::string_view type;            // its letters
  std::span<const std::byte> data;  // of the file
};

// As far as they are whole.
std::vector<PngChunk> chunks_of_png(std::span<const std::byte> png);

void add_chunk(std::vector<std::byte>& png, std::string_view type, std::span<const std::byte> data);

void add_big_endian(std::vector<std::byte>& bytes, std::uint32_t value);
void add_big_endian(std::vector<std::byte>& bytes, std::uint16_t value);
std::uint32_t read_big_endian(std::span<const std::byte, 4> bytes);

}  // namespace mhla::io
