// Reading of whole files, and base64.
#include "io/file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <system_error>

#include "mhla/types.hpp"

namespace mhla::io {
namespace fs = std::filesystem;

std::vector<std::byte> read_file(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (!fs::exists(status)) throw Error(fmt::format("{}: there is no such file", path.string()));
  if (!fs::is_regular_file(status)) throw Error(fmt::format("{}: not a regular file", path.string()));
  const auto size = fs::file_size(path, failure);
  if (failure) throw Error(fmt::format("{}: {}", path.string(), failure.message()));
  std::ifstream stream(path, std::ios::binary);
  std::vector<std::byte> bytes(size);
  stream.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!stream || static_cast<std::uintmax_t>(stream.gcount()) != size)
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
