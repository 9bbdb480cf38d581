// What fuzz targets share. A target is one file with two functions:
//
//   extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)   judges one input
//   mhla::fuzz::Inputs mhla::fuzz::seeds()                                              good inputs to start from
//
// libFuzzer drives them (`make fuzz`), or driver.cpp with a fixed number of inputs (`make test`).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mhla/types.hpp"

namespace mhla::fuzz {

using Bytes = std::vector<std::byte>;
using Inputs = std::vector<Bytes>;

// None: the target takes any bytes as a list of choices (choices.hpp).
Inputs seeds();

// Where the promise is broken: the run ends as with a crash.
[[noreturn]] inline void fail(std::string_view what) {
  std::fprintf(stderr, "fuzz: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

inline void expect(bool ok, std::string_view what) {
  if (!ok) fail(what);
}

inline std::span<const std::byte> bytes_of(const std::uint8_t* data, std::size_t size) {
  return std::as_bytes(std::span(data, size));
}

inline Bytes copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

inline Bytes bytes_of(std::string_view text) { return copy_of(std::as_bytes(std::span(text.data(), text.size()))); }

// Reads every byte, for the sanitizers to see.
inline void touch(std::span<const std::byte> bytes) {
  volatile unsigned sum = 0;
  for (const std::byte byte : bytes) sum = sum + std::to_integer<unsigned>(byte);
}

// `call` may throw an Error that holds one of `words`, and nothing else. Whether it returned.
template <typename Call>
bool runs_or_names(std::initializer_list<std::string_view> words, Call&& call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    for (const std::string_view word : words)
      if (std::string_view(error.what()).find(word) != std::string_view::npos) return false;
    fail(std::string("the error names neither argument nor file: ") + error.what());
  } catch (const std::exception& error) {
    fail(std::string("not an mhla::Error: ") + error.what());
  }
}

// The input as a file, for readers that take a path.
class File {
 public:
  explicit File(std::string_view ending)
      : path_(std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(id()) + std::string(ending))) {}
  ~File() {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  const std::filesystem::path& with(std::span<const std::byte> bytes) const {
    std::FILE* file = std::fopen(path_.c_str(), "wb");
    expect(file != nullptr && std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size(), "no temporary file");
    std::fclose(file);
    return path_;
  }
  std::string name() const { return path_.string(); }

 private:
  static long id();
  std::filesystem::path path_;
};

}  // namespace mhla::fuzz
