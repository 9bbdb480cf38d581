// Image files made for tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/image.hpp"

namespace mhla::testing {

// A smooth picture, different for every `variant`.
io::Image test_picture(std::int64_t height, std::int64_t width, int variant = 0);

enum class JpegKind { rgb, grey, cmyk, ycck, progressive };
// cmyk and ycck hold the inverse of the image as ink, black ink zero, stored inverted as Adobe's programs do.
std::vector<std::byte> make_jpeg(const io::Image& image, JpegKind kind = JpegKind::rgb, int quality = 95);

// `samples` in PNG's own order; 16-bit samples most significant byte first.
struct PngLayout {
  int bits = 8;
  int color_type = 2;  // 0 grey, 2 RGB, 3 palette, 4 grey + alpha, 6 RGB + alpha
  bool interlaced = false;
  std::vector<std::uint8_t> palette = {};  // RGB triples
};
std::vector<std::byte> make_png(std::int64_t height, std::int64_t width, const std::vector<std::uint8_t>& samples,
                                const PngLayout& layout);

std::vector<std::byte> bytes_of(const std::string& text);

// A tar archive of (name, content); a name that ends in a slash is a folder.
struct TarItem {
  std::string name;
  std::vector<std::byte> content;
  char type = '0';
};
std::vector<std::byte> make_tar(const std::vector<TarItem>& items);
std::vector<std::byte> tar_header(const std::string& name, std::size_t size, char type);
std::vector<std::byte> gzip(std::span<const std::byte> bytes);

// Random damage: flipped and changed bytes, cut ends, bytes put in and taken out.
template <typename Random>
std::vector<std::byte> damaged(std::vector<std::byte> bytes, Random& random) {
  const auto pick = [&](std::size_t count) { return static_cast<std::size_t>(random() % count); };
  for (std::size_t edits = 1 + pick(4); edits > 0 && !bytes.empty(); --edits) {
    const std::size_t place = pick(bytes.size());
    const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(place);
    switch (pick(5)) {
      case 0:
        *at ^= static_cast<std::byte>(1U << pick(8));
        break;
      case 1:
        *at = static_cast<std::byte>(pick(256));
        break;
      case 2:
        bytes.resize(place);
        break;
      case 3:
        bytes.insert(at, static_cast<std::byte>(pick(256)));
        break;
      default:
        bytes.erase(at);
    }
  }
  return bytes;
}

}  // namespace mhla::testing
