// Which decoder an image file needs.
#include "io/image.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "io/file.hpp"
#include "io/jpeg.hpp"
#include "io/png.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

template <std::size_t count>
bool begins_with(std::span<const std::byte> bytes, const std::array<unsigned char, count>& signature) {
  return bytes.size() >= count && std::equal(signature.begin(), signature.end(), bytes.begin(),
                                             [](unsigned char a, std::byte b) { return a == std::to_integer<int>(b); });
}

constexpr std::array<unsigned char, 3> kJpeg = {0xFF, 0xD8, 0xFF};

std::string first_bytes(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte value : bytes.first(std::min<std::size_t>(bytes.size(), 8))) {
    const int code = std::to_integer<int>(value);
    text += std::isprint(code) != 0 ? std::string(1, static_cast<char>(code)) : fmt::format("\\x{:02x}", code);
  }
  return text;
}

}  // namespace

Image make_image(std::int64_t height, std::int64_t width) {
  return {height, width, std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3))};
}

Image decode_image(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.empty()) throw Error(fmt::format("{}: the file is empty; it must be a JPEG or PNG image", name));
  if (begins_with(bytes, kJpeg)) return decode_jpeg(bytes, name);
  if (is_png(bytes)) return decode_png(bytes, name);
  throw Error(fmt::format("{}: neither JPEG nor PNG; it begins with \"{}\"", name, first_bytes(bytes)));
}

Image load_image(const std::filesystem::path& path) {
  return decode_image(read_file(path, kMostFileBytes), path.string());
}

}  // namespace mhla::io
