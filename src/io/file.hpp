// Whole files in and out of memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::io {

// Of a regular file.
std::size_t size_of_file(const std::filesystem::path& path);

// More than `most` bytes, or more than there is memory for, are an error.
std::vector<std::byte> read_file(const std::filesystem::path& path,
                                 std::size_t most = std::numeric_limits<std::size_t>::max());

// The first bytes of a file, at most `count`: enough to see that it is something else, whatever its size.
std::vector<std::byte> read_beginning(const std::filesystem::path& path, std::size_t count);

// A whole file at once, as NewFile (io/new_file.hpp) writes it: complete or not at all.
void write_file(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file(const std::filesystem::path& path, std::string_view text);

// The same, flushed to the disk before and after the renaming: the file survives a crash of the machine.
void write_durably(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Removes what killed processes left beside their files in this folder.
void remove_unfinished(const std::filesystem::path& folder);

std::string base64(std::span<const std::byte> bytes);

}  // namespace mhla::io
