// Documents in files of text: plain, JSON lines with a member "text", either of them compressed by gzip, or tar
// archives of these. In plain text a line <|endoftext|> separates documents.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mhla::data {

// Folders are replaced by the files below them, by name. Hidden files are left out.
std::vector<std::filesystem::path> files_of_text(const std::vector<std::string>& paths);

// In the order of the file; documents of white space alone are left out. `done` is the part of the file before the end
// of the document, 0 to 1. What is not UTF-8 or no JSON is an error that names the line.
void for_each_document(const std::filesystem::path& file,
                       const std::function<void(std::string_view document, double done)>& take);

// The same of a file that is in memory.
void for_each_document(const std::string& name, std::span<const std::byte> bytes,
                       const std::function<void(std::string_view document, double done)>& take);

}  // namespace mhla::data
