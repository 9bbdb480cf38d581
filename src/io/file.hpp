// Whole files in and out of memory. Writing is atomic: a reader sees the old file or the complete new one.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::io {

std::vector<std::byte> read_file(const std::filesystem::path& path);

// Writes beside `path`, then renames; creates missing folders. On failure nothing is left behind.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

std::string base64(std::span<const std::byte> bytes);

}  // namespace mhla::io
