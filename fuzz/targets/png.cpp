// PNG pictures, their texts and animations. Most changes break a checksum, so each input is also tried with its
// checksums put right.
#include <zlib.h>

#include "io/apng.hpp"
#include "io/image.hpp"
#include "support/image_files.hpp"
#include "support/target.hpp"

using namespace mhla;

namespace {

constexpr std::size_t kSignature = 8;

std::uint32_t big_endian(const std::byte* at) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8U | std::to_integer<std::uint32_t>(at[i]);
  return value;
}

// Chunks are a length, four letters, data and the checksum of letters and data.
fuzz::Bytes with_checksums(fuzz::Bytes png) {
  for (std::size_t at = kSignature; at + 12 <= png.size();) {
    const std::size_t length = std::min<std::size_t>(big_endian(&png[at]), png.size() - at - 12);
    const auto* begin = reinterpret_cast<const Bytef*>(&png[at + 4]);
    const auto sum = static_cast<std::uint32_t>(crc32(0, begin, static_cast<uInt>(length + 4)));
    for (std::size_t i = 0; i < 4; ++i) png[at + 8 + length + i] = static_cast<std::byte>(sum >> (24 - 8 * i));
    at += 12 + length;
  }
  return png;
}

// Pictures that are large and allowed take their time: a few million pixels are enough here.
bool is_large(const fuzz::Bytes& png) {
  return png.size() >= 24 && std::uint64_t{big_endian(&png[16])} * big_endian(&png[20]) > 1 << 20;
}

void judge(const fuzz::Bytes& png) {
  fuzz::runs_or_names({"the-file"}, [&] {
    const io::Image image = io::decode_image(png, "the-file");
    io::PngTexts texts;
    if (io::is_png(png)) io::decode_png(png, "the-file", &texts);
    io::frames_of_png(png);
    fuzz::expect(image.height > 0 && image.width > 0 &&
                     image.rgb.size() == static_cast<std::size_t>(image.height * image.width * 3),
                 "an image with other bytes than its size says");
  });
}

}  // namespace

fuzz::Inputs fuzz::seeds() {
  using testing::make_png;
  std::vector<std::uint8_t> samples(9 * 7 * 8);
  for (std::size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<std::uint8_t>(37 * i);
  const auto part = [&](std::size_t count) {
    return std::vector<std::uint8_t>(samples.begin(), samples.begin() + count);
  };
  const io::Image image{9, 7, part(9 * 7 * 3)};
  return {io::encode_png(image.rgb, 7, 9, {{"note", "text"}, {"empty", ""}}),
          io::encode_apng(image, std::vector<io::AnimationFrame>{{image}}),
          make_png(9, 7, part(9 * 7 * 3), {}),
          make_png(9, 7, part(9 * 7 * 8), {.bits = 16, .color_type = 6}),
          make_png(4, 4, part(16), {.bits = 8, .color_type = 0, .interlaced = true}),
          make_png(4, 4, std::vector<std::uint8_t>(16, 1), {.color_type = 3, .palette = {1, 2, 3, 200, 100, 0}})};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const fuzz::Bytes png = fuzz::copy_of(fuzz::bytes_of(data, size));
  judge(png);
  if (!is_large(png)) judge(with_checksums(png));
  return 0;
}
