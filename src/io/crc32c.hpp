// CRC-32C (Castagnoli), the checksum of TensorBoard's records and of our checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mhla::io {

// Of the bytes seen so far (whose checksum is `before`) followed by these.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace mhla::io
