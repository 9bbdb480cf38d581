// gzip in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mhla::io {

bool is_gzip(std::span<const std::byte> bytes);

// How many bytes a gzip file of this size may unpack to: 100 times its size, at least 64 MB, at most 16 GB. A file of a
// few MB made to exhaust the memory unpacks to 1,000 times its size.
std::size_t most_unpacked(std::size_t packed);

// All members of a gzip file, one after another. `name` begins every error message; more than `most` bytes are an
// error.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view name, std::size_t most);
inline std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view name) {
  return gunzip(bytes, name, most_unpacked(bytes.size()));
}

}  // namespace mhla::io
