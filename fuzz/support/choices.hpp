// Bytes as a list of choices: small numbers most of the time, now and then the numbers at which arithmetic breaks.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

namespace mhla::fuzz {

class Choices {
 public:
  explicit Choices(std::span<const std::byte> bytes) : rest_(bytes) {}

  std::uint8_t byte() {
    if (rest_.empty()) return 0;
    const auto first = std::to_integer<std::uint8_t>(rest_.front());
    rest_ = rest_.subspan(1);
    return first;
  }
  bool flag() { return (byte() & 1U) != 0; }
  bool rarely() { return byte() >= 240; }
  bool left() const { return !rest_.empty(); }

  // low .. high
  std::int64_t number(std::int64_t low, std::int64_t high) { return low + byte() % (high - low + 1); }

  // The same, or rarely any number.
  std::int64_t size(std::int64_t low, std::int64_t high) {
    if (!rarely()) return number(low, high);
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    constexpr std::array<std::int64_t, 16> kHard{-1,
                                                 0,
                                                 -2,
                                                 std::int64_t{1} << 31,
                                                 (std::int64_t{1} << 31) - 1,
                                                 std::int64_t{1} << 32,
                                                 std::int64_t{1} << 40,
                                                 std::int64_t{1} << 53,
                                                 std::int64_t{1} << 60,
                                                 std::int64_t{1} << 61,
                                                 std::int64_t{1} << 62,
                                                 kMost,
                                                 kMost - 1,
                                                 std::numeric_limits<std::int64_t>::min(),
                                                 65536,
                                                 1 << 24};
    // The largest and one more is the smallest.
    const std::int64_t hard = kHard[byte() % kHard.size()], more = flag() ? number(0, 3) - 1 : 0;
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(hard) + static_cast<std::uint64_t>(more));
  }

  double factor() {
    constexpr std::array<double, 8> kPlain{1.0, 0.5, 0.25, 2.0, -1.0, 1e-3, 1e-6, 0.0};
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    constexpr std::array<double, 6> kHard{kInfinity, -kInfinity, std::numeric_limits<double>::quiet_NaN(),
                                          1e300,     1e-300,     1e30};
    return rarely() ? kHard[byte() % kHard.size()] : kPlain[byte() % kPlain.size()];
  }

  template <typename Enum>
  Enum choice(int count) {
    return static_cast<Enum>(byte() % count);
  }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace mhla::fuzz
