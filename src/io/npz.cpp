// The header of .npy files.
#include "io/npz.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>

namespace mhla::io {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are written as they are in memory");

// Version 1.0: a magic word, two bytes of length, a Python dict, spaces up to a multiple of 64 bytes, a line feed.
std::string npy_header(NpzWriter::Type type, const std::vector<std::int64_t>& shape) {
  constexpr std::size_t kPreamble = 10, kMultiple = 64;
  std::string dict =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}",
                  type == NpzWriter::Type::uint8 ? "|u1" : "<i8", fmt::join(shape, ", "), shape.size() == 1 ? "," : "");
  const std::size_t filled = kPreamble + dict.size() + 1;
  dict.append((kMultiple - filled % kMultiple) % kMultiple, ' ');
  dict += '\n';
  std::string header = "\x93NUMPY";
  header += {'\x01', '\x00', static_cast<char>(dict.size() & 0xFFU), static_cast<char>(dict.size() >> 8U)};
  return header + dict;
}

}  // namespace

void NpzWriter::begin(const std::string& name, Type type, const std::vector<std::int64_t>& shape) {
  const std::string header = npy_header(type, shape);
  std::uint64_t bytes = type == Type::uint8 ? sizeof(std::uint8_t) : sizeof(std::int64_t);
  for (const std::int64_t extent : shape) bytes *= static_cast<std::uint64_t>(extent);
  zip_.begin(name + ".npy", header.size() + bytes);
  zip_.write(std::as_bytes(std::span(header)));
}

}  // namespace mhla::io
