// A short name for what a tokenizer does: a hash (FNV-1a) of everything its results depend on.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace mhla::text {

class Fingerprint {
 public:
  void add(std::string_view bytes) {
    add(bytes.size());
    for (const char byte : bytes) add_byte(static_cast<std::uint8_t>(byte));
  }
  void add(std::uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) add_byte(number >> shift & 0xFFU);
  }
  std::string hexadecimal() const { return fmt::format("{:016x}", hash_); }

 private:
  void add_byte(std::uint64_t byte) { hash_ = (hash_ ^ byte) * 0x100000001B3U; }

  std::uint64_t hash_ = 0xCBF29CE484222325U;
};

}  // namespace mhla::text
