// The header is a Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (2, 4, 32, 32), }
#include "io/npy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "io/safetensors.hpp"
#include "mhla/types.hpp"

namespace mhla::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kTypes = {{{"<f2", "F16"},
                                                                                   {"<f4", "F32"},
                                                                                   {"<f8", "F64"},
                                                                                   {"|i1", "I8"},
                                                                                   {"|u1", "U8"},
                                                                                   {"|b1", "BOOL"},
                                                                                   {"<i2", "I16"},
                                                                                   {"<u2", "U16"},
                                                                                   {"<i4", "I32"},
                                                                                   {"<u4", "U32"},
                                                                                   {"<i8", "I64"},
                                                                                   {"<u8", "U64"}}};

// What follows "'key':" in the header, without spaces in front.
std::string_view member(std::string_view header, std::string_view key, std::string_view name) {
  const std::string quoted = fmt::format("'{}':", key);
  const std::size_t found = header.find(quoted);
  if (found == std::string_view::npos) throw Error(fmt::format("{}: no '{}' in its header", name, key));
  std::string_view rest = header.substr(found + quoted.size());
  while (rest.starts_with(' ')) rest.remove_prefix(1);
  return rest;
}

std::string_view dtype_of(std::string_view header, std::string_view name) {
  const std::string_view descr = member(header, "descr", name);
  for (const auto& [numpy, ours] : kTypes)
    if (descr.starts_with(fmt::format("'{}'", numpy))) return ours;
  throw Error(fmt::format("{}: its type is {}; it may be a little-endian number of up to 8 bytes, such as '<f4'", name,
                          descr.substr(0, descr.find(','))));
}

std::vector<std::int64_t> shape_of(std::string_view header, std::string_view name) {
  std::string_view rest = member(header, "shape", name);
  const auto wrong = [&] { return Error(fmt::format("{}: its shape is no list of sizes", name)); };
  if (!rest.starts_with('(')) throw wrong();
  rest.remove_prefix(1);
  std::vector<std::int64_t> shape;
  for (;;) {
    while (rest.starts_with(' ') || rest.starts_with(',')) rest.remove_prefix(1);
    if (rest.starts_with(')')) return shape;
    std::int64_t extent = 0;
    const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), extent);
    if (failure != std::errc{} || extent < 0) throw wrong();
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    shape.push_back(extent);
  }
}

}  // namespace

NpyArray parse_npy(std::span<const std::byte> bytes, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto cut_off = [&] { return Error(fmt::format("{}: cut off after {} bytes", name, bytes.size())); };
  if (!text.starts_with(kMagic)) throw Error(fmt::format("{}: no .npy file", name));
  if (text.size() < 12) throw cut_off();
  const auto byte = [&](std::size_t i) { return std::to_integer<std::size_t>(bytes[i]); };
  const bool short_length = byte(6) == 1;
  const std::size_t begin = short_length ? 10 : 12;
  std::size_t length = byte(8) | byte(9) << 8;
  if (!short_length) length |= byte(10) << 16 | byte(11) << 24;
  if (length > text.size() - begin) throw cut_off();
  const std::string_view header = text.substr(begin, length);
  if (!member(header, "fortran_order", name).starts_with("False"))
    throw Error(fmt::format("{}: the array is in Fortran order; it must be in C order", name));
  NpyArray array{std::string(dtype_of(header, name)), shape_of(header, name), bytes.subspan(begin + length)};
  std::size_t expected = safetensors_element_size(array.dtype);
  for (const std::int64_t extent : array.shape)
    if (__builtin_mul_overflow(expected, static_cast<std::size_t>(extent), &expected))
      throw Error(fmt::format("{}: shape ({}) overflows", name, fmt::join(array.shape, ", ")));
  if (array.data.size() != expected)
    throw Error(fmt::format("{}: {} data bytes; shape ({}) needs {}", name, array.data.size(),
                            fmt::join(array.shape, ", "), expected));
  return array;
}

}  // namespace mhla::io
