// gzip with zlib.
#include "io/gzip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <new>

#include "mhla/types.hpp"

namespace mhla::io {
namespace {

struct Inflater {
  z_stream stream{};
  explicit Inflater(std::string_view name) {
    constexpr int kGzipOnly = 16 + MAX_WBITS;
    if (inflateInit2(&stream, kGzipOnly) != Z_OK) throw Error(fmt::format("{}: no memory for decompression", name));
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream); }
};

void make_room(std::vector<std::byte>& bytes, std::size_t size, std::string_view name) {
  try {
    bytes.resize(size);
  } catch (const std::bad_alloc&) {
    throw Error(fmt::format("{}: its {} or more unpacked bytes do not fit in memory; unpack it to a folder", name,
                            bytes.size()));
  }
}

}  // namespace

bool is_gzip(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1F} && bytes[1] == std::byte{0x8B};
}

std::size_t most_unpacked(std::size_t packed) {
  constexpr std::size_t kRatio = 100, kLeast = std::size_t{1} << 26, kMost = std::size_t{1} << 34;
  return std::clamp(std::min(packed, kMost) * kRatio, kLeast, kMost);
}

std::vector<std::byte> gunzip(std::span<const std::byte> bytes, std::string_view name, std::size_t most) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  Inflater inflater(name);
  z_stream& stream = inflater.stream;
  std::vector<std::byte> result;
  std::size_t used = 0;
  int state = Z_OK;
  while (state != Z_STREAM_END || is_gzip(bytes)) {
    if (state == Z_STREAM_END) inflateReset(&stream);
    if (used == result.size()) {
      if (used >= most)
        throw Error(fmt::format("{}: unpacks to more than {} bytes; unpack it to a folder", name, most));
      make_room(result, std::min(most, std::max(used + kPiece, used + used / 2)), name);
    }
    const auto most_at_once = std::size_t{std::numeric_limits<uInt>::max()};
    const std::size_t in = std::min(bytes.size(), most_at_once), out = std::min(result.size() - used, most_at_once);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(bytes.data()));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(result.data() + used);
    stream.avail_out = static_cast<uInt>(out);
    state = inflate(&stream, Z_NO_FLUSH);
    bytes = bytes.subspan(in - stream.avail_in);
    used += out - stream.avail_out;
    if (state == Z_BUF_ERROR || (state == Z_OK && bytes.empty() && stream.avail_out != 0))
      throw Error(fmt::format("{}: the gzip data end too early", name));
    if (state != Z_OK && state != Z_STREAM_END)
      throw Error(fmt::format("{}: damaged gzip data: {}", name, stream.msg != nullptr ? stream.msg : zError(state)));
  }
  result.resize(used);
  return result;
}

}  // namespace mhla::io
