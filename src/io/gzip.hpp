// gzip in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace mhla::io {

bool is_gzip(std::span<const std::byte> bytes);

// All members of a gzip file, one after another. `name` begins every error message; more than `most` bytes are an
// error.
std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view name,
                              std::size_t most = std::size_t{1} << 34);

}  // namespace mhla::io
