// Zip archives out: members without compression, written in one pass.
//
//   local header, data, checksum and size    for each member
//   central directory, its end               what readers begin with
//
// Sizes and places of 4 GB and more are in the fields of ZIP64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/new_file.hpp"

namespace mhla::io {

class ZipWriter {
 public:
  static constexpr std::uint64_t kZip64From = 0xFFFFFFFF;

  // Sizes and places of `zip64_from` bytes and more are in the fields of ZIP64.
  explicit ZipWriter(const std::filesystem::path& path, std::uint64_t zip64_from = kZip64From);

  // The bytes of a member follow with write(), in pieces of any size, `size` in all.
  void begin(const std::string& name, std::uint64_t size);
  void write(std::span<const std::byte> bytes);
  void finish();

 private:
  struct Member {
    std::string name;
    std::uint64_t place, size;
    bool zip64;  // of its size
    std::uint64_t written = 0;
    std::uint32_t checksum = 0;
  };
  bool large(std::uint64_t value) const { return value >= zip64_from_; }
  void put(std::span<const std::byte> bytes);
  void end_member();
  std::vector<std::byte> directory_entry(const Member& member) const;
  std::vector<std::byte> directory_end(std::uint64_t size) const;  // of a directory that was just written

  NewFile file_;
  std::uint64_t zip64_from_, place_ = 0;
  std::vector<Member> members_;
};

}  // namespace mhla::io
