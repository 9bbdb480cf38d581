// A file that is being written: all files of the program are. Every failure is an Error with the file's name and the
// system's reason.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mhla::io {

class OutputFile {
 public:
  // `flags` as open(2) takes them. `name` stands for the file in errors.
  OutputFile(const std::filesystem::path& path, int flags, std::string name);
  OutputFile(const std::filesystem::path& path, int flags) : OutputFile(path, flags, path.string()) {}
  // A stream that is open already: writes through a descriptor of its own.
  OutputFile(int open_descriptor, std::string name);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void flush_to_disk();  // of a pipe or a device: nothing
  void close();          // what the destructor does, but with an Error where it fails

  int descriptor() const { return descriptor_; }

 private:
  std::string name_;
  int descriptor_;
};

// After what std::cout holds.
void write_standard_output(std::string_view text);

}  // namespace mhla::io
