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

// Writes beside `path`, then renames; creates missing folders. On failure (a full disk, a missing right) the error says
// why, what was at `path` before is still there, and nothing is left beside it.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

// The same, flushed to the disk before and after the renaming: the file survives a crash of the machine.
void write_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Removes what killed processes left beside their files in this folder.
void remove_unfinished(const std::filesystem::path& folder);

std::string base64(std::span<const std::byte> bytes);

}  // namespace mhla::io
