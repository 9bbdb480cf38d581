// PNG decoding with libpng.
//
// libpng leaves a failed call by longjmp, which must not pass over C++ objects: the functions between setjmp and the
// library hold none, and what they fill belongs to their caller.
#include <fmt/format.h>
#include <png.h>

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "io/png.hpp"
#include "io/png_chunks.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

constexpr png_uint_32 kLargestSide = 1U << 20;
constexpr png_alloc_size_t kMostChunkBytes = 1U << 26;
constexpr std::int64_t kMostDeflated = 1032;  // bytes that deflate can make of one

struct Decoder {
  png_structp library = nullptr;
  png_infop info = nullptr;
  std::span<const std::byte> rest;
  char message[128] = "";

  Decoder() = default;
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() { png_destroy_read_struct(&library, &info, nullptr); }
};

[[noreturn]] void fail(png_structp library, png_const_charp text) {
  auto& decoder = *static_cast<Decoder*>(png_get_error_ptr(library));
  std::snprintf(decoder.message, sizeof decoder.message, "%s", text);
  png_longjmp(library, 1);
}

void ignore_warning(png_structp /*library*/, png_const_charp /*text*/) {}

void take_bytes(png_structp library, png_bytep target, std::size_t count) {
  auto& decoder = *static_cast<Decoder*>(png_get_io_ptr(library));
  if (count > decoder.rest.size()) fail(library, "the file ends too early");
  std::memcpy(target, decoder.rest.data(), count);
  decoder.rest = decoder.rest.subspan(count);
}

// Up to the first pixel; everything becomes 8-bit RGB.
bool read_header(Decoder& decoder) {
  if (setjmp(png_jmpbuf(decoder.library)) != 0) return false;
  png_set_read_fn(decoder.library, &decoder, take_bytes);
  png_set_user_limits(decoder.library, kLargestSide, kLargestSide);
  png_set_chunk_malloc_max(decoder.library, kMostChunkBytes);
  png_read_info(decoder.library, decoder.info);
  png_set_expand(decoder.library);
  png_set_scale_16(decoder.library);
  png_set_gray_to_rgb(decoder.library);
  png_set_strip_alpha(decoder.library);
  return true;
}

bool read_pixels(Decoder& decoder, std::uint8_t* pixels, std::size_t row_bytes) {
  if (setjmp(png_jmpbuf(decoder.library)) != 0) return false;
  const int passes = png_set_interlace_handling(decoder.library);
  png_read_update_info(decoder.library, decoder.info);
  if (png_get_rowbytes(decoder.library, decoder.info) != row_bytes) fail(decoder.library, "unexpected pixel format");
  const png_uint_32 height = png_get_image_height(decoder.library, decoder.info);
  for (int pass = 0; pass < passes; ++pass)
    for (png_uint_32 y = 0; y < height; ++y) png_read_row(decoder.library, pixels + y * row_bytes, nullptr);
  png_read_end(decoder.library, decoder.info);
  return true;
}

void add_texts(const Decoder& decoder, PngTexts& texts) {
  png_textp stored = nullptr;
  const int count = png_get_text(decoder.library, decoder.info, &stored, nullptr);
  for (const png_text& text : std::span(stored, static_cast<std::size_t>(count))) {
    const bool utf8 = text.compression >= PNG_ITXT_COMPRESSION_NONE;
    const std::size_t size = utf8 ? text.itxt_length : text.text_length;
    texts.emplace_back(text.key, text.text == nullptr ? std::string() : std::string(text.text, size));
  }
}

}  // namespace

bool is_png(std::span<const std::byte> bytes) {
  return bytes.size() >= kPngSignature &&
         png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, kPngSignature) == 0;
}

Image decode_png(std::span<const std::byte> bytes, std::string_view name, PngTexts* texts) {
  Decoder decoder;
  decoder.rest = bytes;
  const auto refuse = [&] { throw Error(fmt::format("{}: damaged PNG: {}", name, decoder.message)); };
  decoder.library = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, fail, ignore_warning);
  if (decoder.library != nullptr) decoder.info = png_create_info_struct(decoder.library);
  if (decoder.info == nullptr) throw Error(fmt::format("{}: no memory for the PNG decoder", name));
  if (!read_header(decoder)) refuse();
  const std::int64_t height = png_get_image_height(decoder.library, decoder.info);
  const std::int64_t width = png_get_image_width(decoder.library, decoder.info);
  if (height * width > kMostPixels)
    throw Error(fmt::format("{}: a PNG of {} x {} pixels; at most {} are read", name, width, height, kMostPixels));
  const auto stored = static_cast<std::int64_t>(png_get_rowbytes(decoder.library, decoder.info)) * height;
  if (stored / kMostDeflated > std::ssize(bytes))
    throw Error(fmt::format("{}: damaged PNG: {} x {} pixels in {} bytes", name, width, height, bytes.size()));
  Image image = make_image(height, width);
  if (!read_pixels(decoder, image.rgb.data(), static_cast<std::size_t>(width) * 3)) refuse();
  if (texts != nullptr) add_texts(decoder, *texts);
  return image;
}

}  // namespace mhla::io
