// JPEG decoding with libjpeg-turbo.
//
// libjpeg leaves a failed call by longjmp, which must not pass over C++ objects: the functions between setjmp and the
// library hold none, and what they fill belongs to their caller.
#include "io/jpeg.hpp"

#include <fmt/format.h>

#include <csetjmp>
#include <cstdio>
// jpeglib.h needs FILE and size_t.
#include <jerror.h>
#include <jpeglib.h>

#include "mhla/types.hpp"

namespace mhla::io {
namespace {

// A progressive file may repeat its scans without end; real ones have about ten.
constexpr int kMostScans = 200;

// A Huffman code has a bit or more, and there is one for each block of 8 x 8 samples; a component has no fewer samples
// than one for 16 pixels.
constexpr std::int64_t kMostPixelsPerByte = 8 * 64 * 16;

struct Decoder {
  jpeg_decompress_struct library{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf failed{};
  char message[JMSG_LENGTH_MAX] = "";

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { jpeg_destroy_decompress(&library); }
};

Decoder& decoder_of(j_common_ptr library) { return *static_cast<Decoder*>(library->client_data); }

[[noreturn]] void fail(j_common_ptr library) {
  Decoder& decoder = decoder_of(library);
  decoder.errors.format_message(library, decoder.message);
  std::longjmp(decoder.failed, 1);
}

// Warnings of lost pixels are failures: libjpeg would go on with grey. Oddities around the pixels are no matter.
void warn(j_common_ptr library, int level) {
  if (level >= 0) return;
  switch (library->err->msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_TOO_MUCH_DATA:
      return;
    default:
      fail(library);
  }
}

void watch_scans(j_common_ptr library) {
  if (decoder_of(library).library.input_scan_number <= kMostScans) return;
  std::snprintf(decoder_of(library).message, JMSG_LENGTH_MAX, "more than %d scans", kMostScans);
  std::longjmp(decoder_of(library).failed, 1);
}

bool read_header(Decoder& decoder, std::span<const std::byte> bytes) {
  decoder.library.err = jpeg_std_error(&decoder.errors);
  decoder.library.client_data = &decoder;
  decoder.errors.error_exit = fail;
  decoder.errors.emit_message = warn;
  if (setjmp(decoder.failed) != 0) return false;
  jpeg_create_decompress(&decoder.library);
  decoder.progress.progress_monitor = watch_scans;
  decoder.library.progress = &decoder.progress;
  jpeg_mem_src(&decoder.library, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&decoder.library, TRUE);
  const J_COLOR_SPACE stored = decoder.library.jpeg_color_space;
  decoder.library.out_color_space = stored == JCS_CMYK || stored == JCS_YCCK ? JCS_CMYK : JCS_RGB;
  return true;
}

bool read_pixels(Decoder& decoder, std::uint8_t* pixels, std::size_t row_bytes) {
  if (setjmp(decoder.failed) != 0) return false;
  jpeg_start_decompress(&decoder.library);
  while (decoder.library.output_scanline < decoder.library.output_height) {
    JSAMPROW row = pixels + row_bytes * decoder.library.output_scanline;
    jpeg_read_scanlines(&decoder.library, &row, 1);
  }
  jpeg_finish_decompress(&decoder.library);
  return true;
}

// Adobe's programs, which write nearly all CMYK files, store the inks inverted.
std::vector<std::uint8_t> rgb_of_cmyk(const std::vector<std::uint8_t>& cmyk, bool inverted) {
  std::vector<std::uint8_t> rgb(cmyk.size() / 4 * 3);
  const int flip = inverted ? 0 : 255;
  for (std::size_t pixel = 0; pixel < cmyk.size() / 4; ++pixel) {
    const int light = cmyk[4 * pixel + 3] ^ flip;
    for (std::size_t c = 0; c < 3; ++c)
      rgb[3 * pixel + c] = static_cast<std::uint8_t>(((cmyk[4 * pixel + c] ^ flip) * light + 127) / 255);
  }
  return rgb;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, std::string_view name) {
  Decoder decoder;
  const auto refuse = [&] { throw Error(fmt::format("{}: damaged JPEG: {}", name, decoder.message)); };
  if (!read_header(decoder, bytes)) refuse();
  const std::int64_t height = decoder.library.image_height, width = decoder.library.image_width;
  if (height * width > kMostPixels)
    throw Error(fmt::format("{}: a JPEG of {} x {} pixels; at most {} are read", name, width, height, kMostPixels));
  if (decoder.library.arith_code == FALSE && height * width / kMostPixelsPerByte > std::ssize(bytes))
    throw Error(fmt::format("{}: damaged JPEG: {} x {} pixels in {} bytes", name, width, height, bytes.size()));
  const bool cmyk = decoder.library.out_color_space == JCS_CMYK;
  const auto row_bytes = static_cast<std::size_t>(width) * (cmyk ? 4 : 3);
  std::vector<std::uint8_t> pixels(row_bytes * static_cast<std::size_t>(height));
  if (!read_pixels(decoder, pixels.data(), row_bytes)) refuse();
  if (cmyk) pixels = rgb_of_cmyk(pixels, decoder.library.saw_Adobe_marker != 0);
  return {height, width, std::move(pixels)};
}

}  // namespace mhla::io
