#include "support/mutate.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>

namespace mhla::fuzz {
namespace {

constexpr std::array<std::uint64_t, 12> kNumbers{0,           1,           0x7f,        0xff,
                                                 0x7fff,      0xffff,      0x7fffffff,  0x80000000U,
                                                 0xffffffffU, 1ULL << 62U, 1ULL << 63U, 0xffffffffffffffffU};
constexpr std::array<std::string_view, 16> kTexts{"-1",
                                                  "0",
                                                  "4294967296",
                                                  "9223372036854775807",
                                                  "9223372036854775808",
                                                  "1e400",
                                                  "1.5",
                                                  "null",
                                                  "[]",
                                                  "{}",
                                                  "\"\"",
                                                  "true",
                                                  "\\u0000",
                                                  "[[[[[[[[",
                                                  "\xff\xfe",
                                                  "-0.0"};

class Editor {
 public:
  Editor(Bytes& bytes, const Inputs& seeds, Random& random) : bytes_(bytes), seeds_(seeds), random_(random) {}

  void change() {
    if (bytes_.empty()) return put(random_byte());
    switch (random_.below(12)) {
      case 0:
      case 1:
        return flip();
      case 2:
        bytes_[place()] = random_byte();
        return;
      case 3:
        return number();
      case 4:
        return put(random_byte());
      case 5:
        return take(1 + random_.below(8));
      case 6:
        return cut();
      case 7:
        return repeat();
      case 8:
        return move();
      case 9:
        return splice();
      default:
        return text();
    }
  }

 private:
  std::size_t place() { return random_.below(bytes_.size()); }
  std::byte random_byte() { return static_cast<std::byte>(random_.below(256)); }
  auto at(std::size_t index) { return bytes_.begin() + static_cast<std::ptrdiff_t>(index); }

  void flip() { bytes_[place()] ^= static_cast<std::byte>(1U << random_.below(8)); }
  void put(std::byte byte) { bytes_.insert(at(bytes_.empty() ? 0 : place()), byte); }
  void take(std::size_t count) {
    const std::size_t begin = place();
    bytes_.erase(at(begin), at(std::min(bytes_.size(), begin + count)));
  }
  void cut() {
    if (random_.below(4) == 0) bytes_.resize(place());
  }

  // A number at which arithmetic breaks, in 1, 2, 4 or 8 bytes of either order.
  void number() {
    std::uint64_t value = kNumbers[random_.below(kNumbers.size())] + random_.below(3) - 1;
    const std::size_t width = std::size_t{1} << random_.below(4), begin = place();
    const bool big = random_.below(2) == 0;
    for (std::size_t i = 0; i < width && begin + i < bytes_.size(); ++i)
      bytes_[begin + i] = static_cast<std::byte>(value >> (8 * (big ? width - 1 - i : i)));
  }

  void repeat() {
    const std::size_t begin = place(), count = std::min(bytes_.size() - begin, 1 + random_.below(64));
    const Bytes part(at(begin), at(begin + count));
    bytes_.insert(at(place()), part.begin(), part.end());
  }
  void move() {
    const std::size_t from = place(), to = place();
    const std::size_t count = std::min(1 + random_.below(32), bytes_.size() - std::max(from, to));
    std::memmove(bytes_.data() + to, bytes_.data() + from, count);
  }
  void splice() {
    const Bytes& other = seeds_[random_.below(seeds_.size())];
    if (other.empty()) return;
    const std::size_t begin = random_.below(other.size()), to = place();
    const std::size_t count = std::min({1 + random_.below(128), other.size() - begin, bytes_.size() - to});
    std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(begin), count, at(to));
  }

  // In formats of text: another number or value where one stands.
  void text() {
    const auto is_text = [](std::byte b) { return std::isalnum(std::to_integer<unsigned char>(b)) != 0; };
    std::size_t begin = place();
    while (begin < bytes_.size() && !is_text(bytes_[begin])) ++begin;
    std::size_t end = begin;
    while (end < bytes_.size() && is_text(bytes_[end])) ++end;
    const std::string_view with = kTexts[random_.below(kTexts.size())];
    bytes_.erase(at(begin), at(end));
    const auto* first = reinterpret_cast<const std::byte*>(with.data());
    bytes_.insert(at(begin), first, first + with.size());
  }

  Bytes& bytes_;
  const Inputs& seeds_;
  Random& random_;
};

}  // namespace

Bytes mutated(const Inputs& seeds, Random& random) {
  if (seeds.empty()) {
    Bytes bytes(1 + random.below(160));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.below(256));
    return bytes;
  }
  Bytes bytes = seeds[random.below(seeds.size())];
  Editor editor(bytes, seeds, random);
  for (std::size_t edits = 1 + random.below(5); edits > 0; --edits) editor.change();
  return bytes;
}

}  // namespace mhla::fuzz
