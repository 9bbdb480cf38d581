// Random numbers that depend on nothing but their key: (seed, epoch, item).
//
// The n-th number is a hash of key + n (SplitMix64), so that every sample has its own stream whichever thread or
// process draws from it, and the same everywhere.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <span>
#include <utility>

namespace mhla::data {

class RandomStream {
 public:
  RandomStream(std::initializer_list<std::uint64_t> key) {
    for (const std::uint64_t part : key) place_ = hash((place_ ^ part) + kStep);
  }

  std::uint64_t bits() { return hash(place_ += kStep); }

  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }  // [0, 1)
  double uniform(double low, double high) { return low + (high - low) * uniform(); }
  bool chance(double probability) { return uniform() < probability; }

  // 0 to count - 1. The bias of scaling is below count / 2^53.
  std::int64_t below(std::int64_t count) { return static_cast<std::int64_t>(uniform() * static_cast<double>(count)); }

  void shuffle(std::span<std::int64_t> items) {
    for (std::int64_t left = std::ssize(items); left > 1; --left) std::swap(items[left - 1], items[below(left)]);
  }

  double normal() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

  // Beta(alpha, alpha) by Johnk's rejection, quick for alpha up to about 2.
  double beta(double alpha) {
    for (;;) {
      const double x = std::pow(uniform(), 1.0 / alpha), y = std::pow(uniform(), 1.0 / alpha);
      if (x + y > 0.0 && x + y <= 1.0) return x / (x + y);
    }
  }

 private:
  static constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;

  static std::uint64_t hash(std::uint64_t value) {
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9U;
    value = (value ^ value >> 27) * 0x94D049BB133111EBU;
    return value ^ value >> 31;
  }

  std::uint64_t place_ = 0;
};

}  // namespace mhla::data
