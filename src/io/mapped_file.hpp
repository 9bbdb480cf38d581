// A regular file as memory that the system fills when it is read.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>

namespace mhla::io {

struct MappedFile {
  explicit MappedFile(const std::filesystem::path& path);

  std::span<const std::byte> bytes;
  std::shared_ptr<const void> owner;  // keeps the bytes there
};

// Pages that lie wholly in these bytes of a mapped file leave the memory of this process; looked at again they come
// from the file again.
void let_go_of_mapped(std::span<const std::byte> bytes);

}  // namespace mhla::io
