#include "support/image_files.hpp"

#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
// jpeglib.h needs FILE and size_t.
#include <jpeglib.h>

namespace mhla::testing {

io::Image test_picture(std::int64_t height, std::int64_t width, int variant) {
  io::Image image = io::make_image(height, width);
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      std::uint8_t* const pixel = &image.rgb[3 * (y * width + x)];
      pixel[0] = static_cast<std::uint8_t>(255 * y / std::max<std::int64_t>(1, height - 1));
      pixel[1] = static_cast<std::uint8_t>(255 * x / std::max<std::int64_t>(1, width - 1));
      pixel[2] = static_cast<std::uint8_t>(40 + 37 * variant % 200);
    }
  return image;
}

std::vector<std::byte> make_jpeg(const io::Image& image, JpegKind kind, int quality) {
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* buffer = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &buffer, &size);
  const bool inks = kind == JpegKind::cmyk || kind == JpegKind::ycck;
  encoder.image_height = static_cast<JDIMENSION>(image.height);
  encoder.image_width = static_cast<JDIMENSION>(image.width);
  encoder.input_components = inks ? 4 : kind == JpegKind::grey ? 1 : 3;
  encoder.in_color_space = inks ? JCS_CMYK : kind == JpegKind::grey ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&encoder);
  if (kind == JpegKind::ycck) jpeg_set_colorspace(&encoder, JCS_YCCK);
  if (kind == JpegKind::progressive) jpeg_simple_progression(&encoder);
  encoder.write_Adobe_marker = inks ? TRUE : FALSE;
  jpeg_set_quality(&encoder, quality, TRUE);
  for (int c = 0; c < encoder.num_components; ++c)
    encoder.comp_info[c].h_samp_factor = encoder.comp_info[c].v_samp_factor = 1;
  jpeg_start_compress(&encoder, TRUE);
  for (std::int64_t y = 0; y < image.height; ++y) {
    std::vector<unsigned char> row;
    for (std::int64_t x = 0; x < image.width; ++x) {
      const std::uint8_t* const pixel = &image.rgb[3 * (y * image.width + x)];
      row.insert(row.end(), pixel, pixel + (kind == JpegKind::grey ? 1 : 3));
      if (inks) row.push_back(255);
    }
    JSAMPROW rows = row.data();
    jpeg_write_scanlines(&encoder, &rows, 1);
  }
  jpeg_finish_compress(&encoder);
  jpeg_destroy_compress(&encoder);
  const std::unique_ptr<unsigned char, decltype(&std::free)> owned(buffer, &std::free);
  const auto* const begin = reinterpret_cast<const std::byte*>(buffer);
  return {begin, begin + size};
}

std::vector<std::byte> make_png(std::int64_t height, std::int64_t width, const std::vector<std::uint8_t>& samples,
                                const PngLayout& layout) {
  std::vector<std::byte> bytes;
  png_structp encoder = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(encoder);
  const auto append = [](png_structp library, png_bytep data, std::size_t size) {
    auto& target = *static_cast<std::vector<std::byte>*>(png_get_io_ptr(library));
    target.insert(target.end(), reinterpret_cast<std::byte*>(data), reinterpret_cast<std::byte*>(data) + size);
  };
  png_set_write_fn(encoder, &bytes, append, nullptr);
  png_set_IHDR(encoder, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), layout.bits,
               layout.color_type, layout.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (std::size_t i = 0; i + 2 < layout.palette.size(); i += 3)
    palette.push_back({layout.palette[i], layout.palette[i + 1], layout.palette[i + 2]});
  if (!palette.empty()) png_set_PLTE(encoder, info, palette.data(), static_cast<int>(palette.size()));
  png_write_info(encoder, info);
  std::vector<png_bytep> rows;
  for (std::int64_t y = 0; y < height; ++y)
    rows.push_back(const_cast<png_bytep>(samples.data()) + y * static_cast<std::int64_t>(samples.size()) / height);
  png_write_image(encoder, rows.data());
  png_write_end(encoder, info);
  png_destroy_write_struct(&encoder, &info);
  return bytes;
}

std::vector<std::byte> bytes_of(const std::string& text) {
  const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

std::vector<std::byte> tar_header(const std::string& name, std::size_t size, char type) {
  std::string header(512, '\0');
  const auto put = [&](std::size_t place, const std::string& text) { header.replace(place, text.size(), text); };
  char number[16];
  put(0, name.substr(0, 100));
  put(100, "0000644");
  std::snprintf(number, sizeof number, "%011zo", size);
  put(124, number);
  put(148, "        ");
  header[156] = type;
  put(257, std::string("ustar\0", 6) + "00");
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  std::snprintf(number, sizeof number, "%06o", sum);
  put(148, std::string(number) + '\0' + ' ');
  return bytes_of(header);
}

std::vector<std::byte> make_tar(const std::vector<TarItem>& items) {
  std::vector<std::byte> bytes;
  const auto append = [&](const std::vector<std::byte>& part) { bytes.insert(bytes.end(), part.begin(), part.end()); };
  for (const TarItem& item : items) {
    const char type = item.name.ends_with('/') ? '5' : item.type;
    append(tar_header(item.name, item.content.size(), type));
    append(item.content);
    bytes.resize((bytes.size() + 511) / 512 * 512);
  }
  bytes.resize(bytes.size() + 1024);
  return bytes;
}

std::vector<std::byte> gzip(std::span<const std::byte> bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
  std::vector<std::byte> result(deflateBound(&stream, bytes.size()) + 64);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(result.data());
  stream.avail_out = static_cast<uInt>(result.size());
  deflate(&stream, Z_FINISH);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

}  // namespace mhla::testing
