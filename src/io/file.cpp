// Reading of whole files, and base64.
#include "io/file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <system_error>

#include "mhla/types.hpp"

namespace mhla::io {
namespace fs = std::filesystem;

std::size_t size_of_file(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found) throw Error(fmt::format("{}: there is no such file", path.string()));
  if (failure) throw Error(fmt::format("{}: cannot be read: {}", path.string(), failure.message()));
  if (!fs::is_regular_file(status)) throw Error(fmt::format("{}: not a regular file", path.string()));
  const std::uintmax_t size = fs::file_size(path, failure);
  if (failure) throw Error(fmt::format("{}: cannot be read: {}", path.string(), failure.message()));
  return size;
}

std::vector<std::byte> read_file(const fs::path& path, std::size_t most) {
  const std::size_t size = size_of_file(path);
  if (size > most) throw Error(fmt::format("{}: a file of {} bytes; at most {} are read", path.string(), size, most));
  return read_beginning(path, size);
}

std::vector<std::byte> read_beginning(const fs::path& path, std::size_t count) {
  count = std::min(count, size_of_file(path));
  std::vector<std::byte> bytes;
  try {
    bytes.resize(count);
  } catch (const std::exception&) {
    throw Error(fmt::format("{}: {} bytes do not fit in memory", path.string(), count));
  }
  std::ifstream stream(path, std::ios::binary);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(count));
  if (!stream || static_cast<std::size_t>(stream.gcount()) != count)
    throw Error(fmt::format("{}: cannot be read", path.string()));
  return bytes;
}

std::string base64(std::span<const std::byte> bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    unsigned group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? std::to_integer<unsigned>(bytes[i + j]) : 0U);
    for (std::size_t j = 0; j < 4; ++j) text += j <= count ? kDigits[group >> (18 - 6 * j) & 63U] : '=';
  }
  return text;
}

}  // namespace mhla::io
