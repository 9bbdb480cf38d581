// Room on the disk for a file that is about to be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace mhla::io {

// Free bytes on the disk where a file `path` will be, also if its folder is not there yet. Nothing for what is no
// regular file, and where the system does not say.
std::optional<std::uintmax_t> free_bytes(const std::filesystem::path& path);

}  // namespace mhla::io
