// Reading of tar archives, plain or gzip-compressed: ustar, GNU and pax, long names included.
//
// An archive is headers of 512 bytes, each followed by its file's bytes, padded to 512, and ends with zero blocks. All
// headers are checked when the archive is opened. A plain archive stays on disk (mapped), a compressed one is unpacked
// into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mhla::io {

struct TarEntry {
  std::string name;                 // without a leading "./"
  std::span<const std::byte> data;  // lives as long as its archive
};

class TarArchive {
 public:
  static TarArchive load(const std::filesystem::path& path);
  static TarArchive parse(std::vector<std::byte> bytes, std::string source);  // `source` names the file in errors

  const std::string& source() const { return source_; }
  const std::vector<TarEntry>& files() const { return files_; }           // in the archive's order
  const std::vector<std::string>& folders() const { return folders_; }    // without the closing slash
  const std::vector<std::string>& left_out() const { return left_out_; }  // links, devices and the like

 private:
  TarArchive(std::shared_ptr<const void> owner, std::span<const std::byte> bytes, std::string source);
  void read_headers(std::span<const std::byte> bytes);

  std::shared_ptr<const void> owner_;
  std::string source_;
  std::vector<TarEntry> files_;
  std::vector<std::string> folders_;
  std::vector<std::string> left_out_;
};

}  // namespace mhla::io
