// Plain values and arrays to and from bytes, little-endian, with a checksum.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mhla/types.hpp"

namespace mhla {

static_assert(std::endian::native == std::endian::little, "saved states are little-endian");

// FNV-1a over 64 bits.
inline std::uint64_t checksum(std::span<const std::byte> bytes) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3U;
  return hash;
}

class ByteWriter {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T>
  void value(T x) {
    array(std::span<const T>(&x, 1));
  }
  template <typename T>
  void array(std::span<const T> values) {
    const std::size_t before = bytes_.size();
    bytes_.resize(before + values.size_bytes());
    if (!values.empty()) std::memcpy(bytes_.data() + before, values.data(), values.size_bytes());
  }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads in the order of writing; never past the end.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
    requires std::is_arithmetic_v<T>
  T value() {
    T x{};
    array(std::span<T>(&x, 1));
    return x;
  }
  template <typename T>
  void array(std::span<T> values) {
    if (values.size_bytes() > rest_.size())
      throw Error("bytes of a state end early: " + std::to_string(values.size_bytes()) + " more are needed, " +
                  std::to_string(rest_.size()) + " are left");
    if (!values.empty()) std::memcpy(values.data(), rest_.data(), values.size_bytes());
    rest_ = rest_.subspan(values.size_bytes());
  }
  std::size_t left() const { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace mhla
